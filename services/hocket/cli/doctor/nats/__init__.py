"""What `hocket doctor` finds by NATS: servers, streams, their leaders, and what processes say there."""
