"""Hostile values, the platform that they are sent to, and the doors that they come in by."""
