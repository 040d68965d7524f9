"""A running platform as seen from outside: its REST API, tasks and health."""
