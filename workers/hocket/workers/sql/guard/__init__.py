"""Decides which SQL may run: a query is parsed, checked part by part, and written again from its
tree."""
