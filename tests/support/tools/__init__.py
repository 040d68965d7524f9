"""Tools of agents that run in the process of a test."""
