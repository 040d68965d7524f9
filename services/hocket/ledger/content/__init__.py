"""Prompts and answers that are kept, in partitions by day."""
