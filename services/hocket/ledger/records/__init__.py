"""Moves records of calls from the stream into Postgres."""
