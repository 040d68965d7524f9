"""Benchmarks. Run one from the repository's root with `python -m bench.<folder>.<name>`."""
