"""Schedules: tasks submitted by the clock, once for each planned time."""
