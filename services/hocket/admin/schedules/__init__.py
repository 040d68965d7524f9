"""Schedules: tasks that are submitted by the clock, each time once."""
