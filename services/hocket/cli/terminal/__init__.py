"""Reads from the terminal, and writes to it safely."""
