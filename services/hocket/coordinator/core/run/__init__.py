"""A run's state, and the transitions that events make of it."""
