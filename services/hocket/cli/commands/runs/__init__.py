"""Commands that start, find, change and inspect runs."""
