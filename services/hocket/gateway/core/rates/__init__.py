"""Requests and tokens per minute: the rules, and the minute that slides. Pure."""
