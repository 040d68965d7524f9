"""Traces of runs, made from the rows that the platform keeps anyway, and exported."""
