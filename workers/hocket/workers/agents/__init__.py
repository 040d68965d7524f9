"""Rounds of `agent` nodes: each asks a model, and reads and checks the tool calls in its answer."""
