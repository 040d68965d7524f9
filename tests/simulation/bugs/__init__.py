"""Planted bugs, and whether the checks detect them."""
