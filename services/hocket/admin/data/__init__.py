"""Deletes the data of a tenant, or of a customer by label."""
