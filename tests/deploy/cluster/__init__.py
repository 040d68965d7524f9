"""NATS servers as operators run them, and faults that hit them: `make cluster-test`."""
