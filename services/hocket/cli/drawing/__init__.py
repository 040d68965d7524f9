"""Renders API replies as rich texts and tables for the terminal, in pure functions: no IO, no clock."""
