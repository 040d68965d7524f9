"""The rules, one file for each construct of a pipeline."""
