"""One connection to NATS: its client, what is written to its socket, and the posts that it owes."""
