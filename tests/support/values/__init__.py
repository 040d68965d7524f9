"""Hostile values, the platform that receives them, and the ways by which they enter."""
