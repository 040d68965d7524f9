"""Planted bugs, and a test that the checks detect them."""
