"""The configuration of routing, read and checked."""
