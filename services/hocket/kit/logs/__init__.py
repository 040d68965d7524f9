"""Log files and their bounds, what log lines carry, and where logs and metrics go."""
