"""Lets the bearers of keys connect to NATS, closes the connections of keys that are no longer valid, and
creates the consumers from which tenants read their events."""
