"""Jinja2 templates, run by our own evaluator in counted steps: no part of a template becomes Python
code, and everything it may use is listed in tables (docs/decisions/0010-expressions-have-a-price.md)."""
