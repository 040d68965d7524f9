"""Requests to services over NATS: only to configured ones, with the configured servers and credentials,
bounded in time and bytes."""
