"""Exports traces of ended runs to an OTLP endpoint."""
