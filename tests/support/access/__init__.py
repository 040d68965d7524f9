"""Bearers of keys that connect to NATS."""
