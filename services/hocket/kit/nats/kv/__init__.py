"""Buckets of small values under keys, as NATS' key-value stores keep them."""
