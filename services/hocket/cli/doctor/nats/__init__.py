"""The checks of `hocket doctor` over NATS: servers, streams, their leaders, and what processes
report."""
