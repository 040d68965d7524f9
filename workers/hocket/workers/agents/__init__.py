"""Rounds of `agent` nodes: a model is asked, and what it calls is read and checked."""
