"""Model calls of an attempt: request and reply, their cost, and the time they took."""
