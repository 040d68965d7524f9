"""Backends and their replicas, as all gateways see them, and what operators want of them."""
