"""Jinja2 templates, run by an evaluator of our own in counted steps: nothing of a template becomes
Python, and what it may use stands in tables (docs/decisions/0010-expressions-have-a-price.md)."""
