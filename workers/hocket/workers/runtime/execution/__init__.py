"""Runs attempts: their context, their limits, and the slots and threads that they run in."""
