"""Lines that handlers of a run's steps logged."""
