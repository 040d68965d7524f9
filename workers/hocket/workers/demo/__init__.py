"""The demo's data: the chemical elements of the package molmass, as tables and as texts.

See docs/decisions/0003-demo-data.md.
"""
