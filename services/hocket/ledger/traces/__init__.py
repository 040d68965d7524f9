"""Traces of ended runs on their way to an OTLP endpoint."""
