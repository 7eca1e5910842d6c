"""The graph of entities: what text and tags say about them, and the structure that holds it."""
