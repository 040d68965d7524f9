"""Traces of runs, built from the rows that the platform keeps anyway, and their export."""
