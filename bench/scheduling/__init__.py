"""Scheduling: deadlines, overload, races that are cancelled, autoscaling, and teams on one platform."""
