"""Traces of runs: the names of attributes, trace contexts, which traces are exported, spans. Pure."""
