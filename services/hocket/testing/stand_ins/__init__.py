"""Stand-ins that replace servers and real time in a play: models, caches, journals, the clock."""
