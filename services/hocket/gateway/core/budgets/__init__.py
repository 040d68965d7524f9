"""Prices, cost estimates, and the tree of budgets."""
