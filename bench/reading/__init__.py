"""Benchmarks of reading: reports in SQL, lists of runs, consoles and live events."""
