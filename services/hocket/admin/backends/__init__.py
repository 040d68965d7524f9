"""Backends and their replicas, as seen by all gateways, and the orders of operators for them."""
