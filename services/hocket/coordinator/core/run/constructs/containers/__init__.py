"""Constructs that hold steps of their own: maps (items), loops (rounds), races (branches), fallbacks."""
