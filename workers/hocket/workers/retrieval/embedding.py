"""Vectors of texts: what an embedder is, and a check of what it returns."""

import math
from collections.abc import Sequence
from typing import Protocol

from hocket.workers.retrieval.errors import EmbeddingInvalid

MAX_DIMENSION = 16_000
"""What pgvector can store."""
MAX_INDEXED_DIMENSION = 2_000
"""What an HNSW index of pgvector can hold; beyond it every vector is compared."""


LEAST_LENGTH, MAX_LENGTH = 1e-15, 1e15
"""Beyond these the squares that pgvector adds up, in numbers of 32 bits, are 0 or infinite, and the
distance is NaN."""


class Embedder(Protocol):
    """Turns texts into vectors. `model` names it: vectors of different models are never mixed."""

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in their order."""
        ...


async def embedded(
    embedder: Embedder, texts: Sequence[str], dimension: int | None
) -> list[list[float]]:
    """Return the vectors of texts, all of `dimension` (where None: of one and the same).

    Raises EmbeddingInvalid where a vector is missing, of another dimension, all zero or not finite,
    or so short or long that it comes to that.
    """
    vectors = await embedder.embed(texts)
    if len(vectors) != len(texts):
        raise EmbeddingInvalid(
            model=embedder.model, reason=f"{len(vectors)} vectors for {len(texts)} texts"
        )
    for vector in vectors:
        dimension = dimension or len(vector)
        fault = _fault(vector, dimension)
        if fault:
            raise EmbeddingInvalid(model=embedder.model, reason=fault)
    return vectors


def _fault(vector: Sequence[float], dimension: int) -> str:
    if not 1 <= len(vector) <= MAX_DIMENSION:
        return f"a vector of {len(vector)} dimensions"
    if len(vector) != dimension:
        return f"a vector of {len(vector)} dimensions where {dimension} are expected"
    length = math.hypot(*vector)
    if not LEAST_LENGTH <= length <= MAX_LENGTH:
        return "a vector that is all zero or not finite, or as good as that"
    return ""


def as_literal(vector: Sequence[float]) -> str:
    """Return a vector as pgvector reads it."""
    return "[" + ",".join(map(repr, map(float, vector))) + "]"
