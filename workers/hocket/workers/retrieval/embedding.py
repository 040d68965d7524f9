"""Vectors of texts: the interface of embedders, and a check of the vectors that they return."""

import math
from collections.abc import Sequence
from typing import Protocol

from hocket.kit.postgres import vector_indexes
from hocket.workers.retrieval.errors import EmbeddingInvalid

MAX_DIMENSION = 16_000
"""The most dimensions that pgvector can store."""
MAX_INDEXED_DIMENSION = vector_indexes.MAX_INDEXED_DIMENSION


LEAST_LENGTH, MAX_LENGTH = 1e-15, 1e15
"""Beyond these lengths the sums of squares that pgvector computes in 32-bit numbers become 0 or
infinite, and distances become NaN."""


class Embedder(Protocol):
    """Turns texts into vectors. `model` identifies them: vectors of different models are never mixed."""

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in the same order."""
        ...


async def embedded(
    embedder: Embedder, texts: Sequence[str], dimension: int | None
) -> list[list[float]]:
    """Return the vectors of texts, all of dimension `dimension` (if None, all of the same dimension).

    Raises EmbeddingInvalid if a vector is missing, has another dimension, is all zero or not finite, or
    is so short or long that its squares are.
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
        return f"a vector of {len(vector)} dimensions instead of {dimension}"
    length = math.hypot(*vector)
    if not LEAST_LENGTH <= length <= MAX_LENGTH:
        return "a vector that is (almost) all zero or not finite"
    return ""


def as_literal(vector: Sequence[float]) -> str:
    """Return a vector in the text form that pgvector reads."""
    return "[" + ",".join(map(repr, map(float, vector))) + "]"
