"""Runs as server-sent events: EVENTS is read once for all clients of this process."""
