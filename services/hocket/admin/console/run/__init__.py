"""A run in the console: its page, a step of it, and what their scripts load."""
