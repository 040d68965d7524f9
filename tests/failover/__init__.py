"""Postgres' primary is killed and its synchronous standby promoted, under load:
docs/how-to/postgres.md."""
