"""Traces of runs: attribute names, trace contexts, sampling, and spans. Pure."""
