"""The checks of `hocket doctor`: this machine, each NATS server, streams and their replicas, Postgres
and its standbys, and what processes offer."""
