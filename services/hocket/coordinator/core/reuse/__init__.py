"""Outputs that need not be computed again: the step cache, and runs that repeat others."""
