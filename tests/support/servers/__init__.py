"""Servers that tests run against, and their certificates."""
