"""Handlers with a journal, and the parts of a platform around them."""
