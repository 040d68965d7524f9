"""Prepares the data of pages for their templates."""
