"""Timelines, current facts and contradictions."""
