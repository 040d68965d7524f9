"""Hooks: what happens to a call before its backend gets it,
and to the answer before its caller does."""
