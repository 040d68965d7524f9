"""What the gateway adds to a model call, and what its routing and warming save."""
