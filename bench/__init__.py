"""Benchmarks: `python -m bench.<room>.<name>`, from the repository's root."""
