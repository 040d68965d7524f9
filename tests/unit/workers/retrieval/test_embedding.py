"""Vectors that pgvector could not compare are refused where they come in."""

import math

import pytest

from hocket.workers.retrieval.embedding import embedded
from hocket.workers.retrieval.errors import EmbeddingInvalid


class _Answering:
    model = "m"

    def __init__(self, vector: list[float]) -> None:
        self._vector = vector

    async def embed(self, texts: object) -> list[list[float]]:
        return [self._vector]


@pytest.mark.parametrize(
    "vector",
    [
        [0.0, -0.0],
        [math.nan, 1.0],
        [math.inf, 1.0],
        [1e39, 1.0],
        [1e25, 1e25],
        [1e-60, 0.0],
        [5e-324, 0.0],
        [1e308, 1e308],
    ],
)
async def test_a_vector_without_a_distance_is_refused(vector: list[float]) -> None:
    with pytest.raises(EmbeddingInvalid):
        await embedded(_Answering(vector), ["text"], None)


@pytest.mark.parametrize("vector", [[1e-14, 0.0], [1e14, 1.0], [0.6, -0.8]])
async def test_a_vector_with_one_is_taken(vector: list[float]) -> None:
    assert await embedded(_Answering(vector), ["text"], None) == [vector]
