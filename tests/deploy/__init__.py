"""The compose file played on a real Docker engine: `make compose-test`."""
