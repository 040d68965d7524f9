"""Log files and their bounds, and where logs, spans and metrics go."""
