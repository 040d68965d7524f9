"""Keys, identity providers, and bearers of keys that connect to NATS."""
