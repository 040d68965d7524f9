"""What the terminal shows, as functions from API replies to rich's texts and tables: no IO, no clock."""
