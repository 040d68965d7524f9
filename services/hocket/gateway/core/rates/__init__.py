"""Requests and tokens per minute: the rules, and a sliding window of one minute. Pure."""
