"""Envoy in front of Hocket."""
