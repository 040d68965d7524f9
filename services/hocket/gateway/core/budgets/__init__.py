"""Prices, estimates, and budgets as a tree."""
