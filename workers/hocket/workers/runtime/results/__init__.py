"""Results of attempts: encoded so that every later component can carry them, and posted to the log."""
