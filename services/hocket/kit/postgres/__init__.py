"""Postgres: connections, the meaning of errors, the schema's migrations, and logins for reports."""
