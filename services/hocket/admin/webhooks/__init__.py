"""Webhooks: signed HTTP requests that announce the ends of runs and pending approvals."""
