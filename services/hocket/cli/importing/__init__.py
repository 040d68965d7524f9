"""Converts workflows of other systems into pipelines. Pure; one module per format."""
