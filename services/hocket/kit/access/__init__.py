"""Keys in Postgres, what each process knows of them, rate limits, and the audit."""
