"""Deterministic simulation: the real cores and shells on a simulated bus, database and clock.

Everything runs in one thread. Each simulated process has its own event loop (`loop`). The world
(`world`) decides which process runs next and how long every message takes, based on one seed. The
product's code runs unchanged, down to the NATS client; replaced are only sockets (`nats_server`),
Postgres at the level of the store's methods (`database`), and time and randomness (`world`).
"""
