"""Token estimate and settings, under Memwright's names."""
