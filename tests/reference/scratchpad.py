"""The slow, obvious twin of the scratchpad: a list of entries, least recent first."""

from typing import Any


class Scratchpad:
    """Every call gets the time; entries are [key, value, deadline]."""

    def __init__(self, max_size: int, ttl: float) -> None:
        self.max_size = max_size
        self.ttl = ttl
        self.entries: list[list[Any]] = []

    def purge(self, now: float) -> None:
        """Drop what is expired."""
        self.entries = [entry for entry in self.entries if now < entry[2]]

    def get(self, key: str, default: Any, now: float) -> Any:
        """Return a live value and make it the most recent."""
        self.purge(now)
        for entry in self.entries:
            if entry[0] == key:
                self.entries.remove(entry)
                self.entries.append([key, entry[1], now + self.ttl])
                return entry[1]
        return default

    def set(self, key: str, value: Any, now: float) -> None:
        """Store a value as the most recent."""
        self.purge(now)
        self.entries = [entry for entry in self.entries if entry[0] != key]
        if len(self.entries) == self.max_size:
            self.entries.pop(0)
        self.entries.append([key, value, now + self.ttl])

    def delete(self, key: str, now: float) -> bool:
        """Remove a key and tell whether it was live."""
        self.purge(now)
        before = len(self.entries)
        self.entries = [entry for entry in self.entries if entry[0] != key]
        return len(self.entries) < before

    def items(self, now: float) -> list[tuple[str, Any]]:
        """Return live pairs, least recent first."""
        self.purge(now)
        return [(entry[0], entry[1]) for entry in self.entries]
