"""Lets the bearers of keys connect to NATS, ends the connections of keys that count no more, and
makes the consumers by which tenants read their events."""
