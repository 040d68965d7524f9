"""Runs of the pure core for several tests: late ones, stored ones, steps that are ready."""
