"""Answers and errors as OpenAI's API has them, made of ours: for the gateway's HTTP door, and for
clients in handlers, whose calls go through the platform. Pure."""
