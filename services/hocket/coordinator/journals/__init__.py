"""Journals of steps: what handlers have done so far, kept for and shown to the workers that have
the step."""
