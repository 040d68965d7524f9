"""Nodes that are called: the tools of `agent` nodes, what a model's calls of them unfold into, and what
handlers call."""
