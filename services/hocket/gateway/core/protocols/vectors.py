"""The numbers of embeddings, which callers may get as floats of 32 bits."""

from collections.abc import Iterable, Sequence
from math import isfinite

TOO_LARGE = (2.0 - 2.0**-24) * 2.0**127
"""The least number that is infinite as a float of 32 bits."""
NO_VECTOR = "an embedding must hold finite numbers of 32 bits"


def is_vector(numbers: Sequence[float]) -> bool:
    """Return whether each number is finite, also as a float of 32 bits."""
    if not isfinite(sum(numbers)):  # NaN, which no comparison finds, is part of the sum
        return False
    return min(numbers, default=0.0) > -TOO_LARGE and max(numbers, default=0.0) < TOO_LARGE


def are_vectors(rows: Iterable[Sequence[float]]) -> bool:
    """Return whether all numbers of some embeddings are finite."""
    return all(map(is_vector, rows))
