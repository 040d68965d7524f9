"""Processes of the platform that tests start without importing everything anew each time."""
