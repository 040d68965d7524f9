"""Slots at replicas: which call gets one, which calls wait, and how gateways share limits."""
