"""What stands in a play in the place of servers and their time: models, caches, journals, the clock."""
