"""A running platform, seen from outside: its REST API, its tasks, its health."""
