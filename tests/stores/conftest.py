"""Failing assertions of the shipped suite explain themselves, as those of tests do."""
