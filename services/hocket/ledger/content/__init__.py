"""Kept prompts and answers, partitioned by day."""
