"""A run as rows of Postgres, and back."""
