"""Log files and their limits, the fields of log lines, and the setup of logs and metrics."""
