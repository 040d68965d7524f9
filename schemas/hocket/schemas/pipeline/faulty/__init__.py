"""Pipelines with faults: which faults are told, and what people meant."""
