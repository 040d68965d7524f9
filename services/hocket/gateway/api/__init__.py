"""The doors that calls and operators come through: NATS, HTTP, and the same process."""
