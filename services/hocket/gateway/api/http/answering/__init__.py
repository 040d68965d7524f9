"""Request handlers of the HTTP door: calls, whole and as streams, and the list of models."""
