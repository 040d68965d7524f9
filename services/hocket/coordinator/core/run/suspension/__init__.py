"""Handlers that wait: how their steps are suspended, for what, and what they resume with."""
