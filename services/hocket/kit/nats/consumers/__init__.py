"""Ways to read the messages of a stream: in order, by pulling, or as stored, without a consumer."""
