"""Workflows of other systems as pipelines. Pure: one module per format."""
