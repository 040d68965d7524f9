"""Backups of a platform: what is copied out of NATS and Postgres, and how it is put back."""
