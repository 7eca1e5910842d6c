"""Memwright's ranking: tag extraction, scoring rules, and the cascade over any stores."""
