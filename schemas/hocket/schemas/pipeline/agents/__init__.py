"""`agent` nodes: what their tools may be, and what a model's calls of them unfold into."""
