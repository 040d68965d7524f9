"""Limits on a process's memory, disk and garbage collection, and checks of how much is left."""
