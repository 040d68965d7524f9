"""Servers beside which tests run, and their certificates."""
