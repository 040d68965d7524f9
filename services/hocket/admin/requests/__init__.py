"""What every request passes through before it reaches its endpoint, and how errors are reported."""
