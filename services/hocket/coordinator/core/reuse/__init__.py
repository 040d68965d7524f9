"""The step cache: what an entry means for a step that asks."""
