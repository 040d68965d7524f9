"""Limits on a process's memory, disk and garbage collection, checks of how much is left, and places that
tenants share."""
