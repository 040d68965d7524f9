"""Pipelines as runs need them: their versions, compiled, and how long their nodes take."""
