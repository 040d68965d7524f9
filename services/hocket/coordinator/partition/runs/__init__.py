"""The runs of a partition: accepting them, holding them in memory, loading them again, announcing
their ends."""
