"""What stands around a run's rules: what they ask of the shell, bounds, retries, checks of what comes
in, and what is known to be told of ends."""
