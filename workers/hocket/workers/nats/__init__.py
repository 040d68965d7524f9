"""Requests to services over NATS: only to those that the configuration names, at its servers and with
its credentials, bounded in time and bytes."""
