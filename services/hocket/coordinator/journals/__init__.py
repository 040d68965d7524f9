"""Journals of steps: what handlers have done so far, kept for and shown to those who have the step."""
