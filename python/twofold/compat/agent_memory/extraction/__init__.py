"""Facts from messages by rules."""
