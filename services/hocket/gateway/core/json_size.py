"""Whether a JSON document stays within reason once it is read: lists of nothing take thirtyfold."""

MAX_VALUES = 2_000_000
"""Values of one document; what is a token of an embedding's input is one, too."""
SMALL_BYTES = 1024 * 1024
"""What is smaller has no more of them than memory bears."""


def few_values(content: bytes) -> bool:
    """Return whether a document has at most about MAX_VALUES values; marks inside texts count too."""
    if len(content) <= SMALL_BYTES:
        return True
    return sum(map(content.count, (b",", b"[", b"{"))) <= MAX_VALUES
