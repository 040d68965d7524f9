"""Tools for agents that run in the test's process."""
