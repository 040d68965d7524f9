"""The terminal: what is read from it, what is written to it, and safely."""
