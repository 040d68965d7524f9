"""Postgres: connections, what its errors mean, and the schema's migrations."""
