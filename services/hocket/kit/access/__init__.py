"""Keys and grants in Postgres and in memory, NATS accounts, rate limits, and the audit."""
