"""Converts our answers and errors to the form of OpenAI's API: for the gateway's HTTP door, and for
clients inside handlers, whose calls go through the platform. Pure."""
