"""Submits tasks to the broker, one or many per request, with a fast path for both."""
