"""Prompts and answers on their way to where they are kept."""
