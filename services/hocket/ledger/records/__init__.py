"""Records of calls: out of the stream, into Postgres."""
