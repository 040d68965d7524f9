"""Warming: which replicas are started and stopped, when, and how."""
