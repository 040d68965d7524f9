"""Envoy before Hocket."""
