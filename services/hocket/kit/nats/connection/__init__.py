"""One connection to NATS: its client, its socket, its open requests and its unacknowledged posts."""
