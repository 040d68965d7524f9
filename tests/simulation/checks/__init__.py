"""The invariants of every play, and the history that it is checked against."""
