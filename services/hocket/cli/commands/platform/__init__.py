"""Commands that start, maintain and inspect a platform's processes."""
