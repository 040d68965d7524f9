"""Model calls of an attempt: request and reply, and the time they took."""
