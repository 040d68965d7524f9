"""What the coordinator reads from and writes to Postgres."""
