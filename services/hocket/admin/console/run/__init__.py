"""A run in the console: its page, its steps, and the data that their scripts load."""
