"""Data structures of the core."""
