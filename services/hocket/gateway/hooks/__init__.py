"""What happens to a call before a backend gets it, and to its answer before its caller does."""
