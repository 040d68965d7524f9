"""Nodes that are called: the tools of `agent` nodes, the steps that a model's tool calls unfold into,
and the nodes that handlers call."""
