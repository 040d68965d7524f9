"""Checks of values wherever they enter the platform, and how faults are reported."""
