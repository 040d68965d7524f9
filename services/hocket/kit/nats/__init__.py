"""NATS: the connection, its streams and buckets, events and dead letters."""
