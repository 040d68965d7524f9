"""Log lines written by the handlers of a run's steps."""
