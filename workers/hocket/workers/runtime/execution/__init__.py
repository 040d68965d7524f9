"""One attempt: its context, its limits, its result, and what becomes of its failure."""
