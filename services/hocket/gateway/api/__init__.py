"""The gateway's entry points ("doors") for calls and operators: NATS, HTTP, and in-process."""
