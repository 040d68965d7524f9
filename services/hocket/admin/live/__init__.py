"""Runs as server-sent events: one reading of EVENTS for all clients of this process."""
