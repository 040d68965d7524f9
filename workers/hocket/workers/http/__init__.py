"""Requests to HTTP services: only to configured ones, bounded in time and bytes, and never to a private
address unless the configuration allows it."""
