"""What `hocket doctor` checks: this machine, each server of NATS, streams and their copies, Postgres and
its standbys, and what processes offer."""
