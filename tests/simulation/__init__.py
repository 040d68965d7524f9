"""Deterministic simulation: the real cores and shells on a simulated bus, database and clock.

Everything runs in one thread. Each simulated process has an event loop of its own (`loop`), the
world (`world`) chooses whose turn it is and how long every message takes, out of one seed. The
product's code runs unchanged, down to the NATS client; what is replaced are sockets (`nats_server`),
Postgres at the level of the store's methods (`database`), and time and dice (`world`).
"""
