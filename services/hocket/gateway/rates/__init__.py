"""Requests and tokens per minute: calls wait for their turn, or are refused."""
