"""What the real platform does when a disk, connections, file handles or memory run out:
docs/explanation/outages.md. `make exhaustion` plays everything, `pytest tests/exhaustion` short
versions."""
