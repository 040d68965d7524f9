"""Deadlines, forecasts of durations, and where a run's time went."""
