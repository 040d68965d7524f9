"""Passes prompts and answers on to be kept."""
