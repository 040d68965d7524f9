"""The simulated world: virtual time, event loops, NATS, and the coordinator's tables."""
