"""Handlers with a journal, and the parts of a platform that they need."""
