"""Webhooks: the ends of runs, and approvals that wait, told by signed HTTP requests."""
