"""Choosing a replica: breakers, queues, history, and the contents of KV caches."""
