"""Requests to HTTP services: only to those that the configuration names, bounded in time and bytes, and
never to a private address unless it says so."""
