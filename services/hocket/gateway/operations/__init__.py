"""Operators' orders for replicas (drain, warm, reset), followed by every gateway."""
