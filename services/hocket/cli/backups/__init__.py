"""Backups of a platform: what is copied from NATS and Postgres, and how it is restored."""
