"""Buckets of small values under keys, in NATS's key-value stores."""
