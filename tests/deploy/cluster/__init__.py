"""NATS servers as operators have them, and what may happen to them: `make cluster-test`."""
