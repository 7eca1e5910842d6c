"""Store interfaces, the registry of backends and connection settings, under Memwright's names."""
