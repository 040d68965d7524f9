"""Experiments: which arm a call takes, and when an arm is rolled back."""
