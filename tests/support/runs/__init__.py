"""Runs of the pure core for several tests: late runs, stored runs, and ready steps."""
