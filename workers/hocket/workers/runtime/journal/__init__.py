"""Journals: records of what a handler has done, so that no other attempt of its step repeats it."""
