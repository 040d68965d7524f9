"""Modules that worker and gateway processes import by their bare names (`HANDLERS`)."""
