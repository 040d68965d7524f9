"""Reciprocal rank fusion: combines several rankings of the same items into one. Pure.

Cormack, Clarke and Buettcher, SIGIR 2009: score(d) = sum over rankings of 1 / (k + rank(d)), k = 60.
Only ranks count, so scores that are not comparable (text rank, cosine distance) need not be compared.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K: Final = 60

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Fused(Generic[Item]):
    """An item, its score, and its rank (from 1) in each ranking that has it."""

    item: Item
    score: float
    ranks: Mapping[str, int]


def fuse(rankings: Mapping[str, Sequence[Item]], k: int = K) -> list[Fused[Item]]:
    """Return all items of the named rankings, best first.

    Equal scores are ordered by best rank, then by first appearance. An item counts once per ranking.
    """
    ranks: dict[Item, dict[str, int]] = {}
    for name, ranking in rankings.items():
        for rank, item in enumerate(ranking, 1):
            ranks.setdefault(item, {}).setdefault(name, rank)
    fused = [
        Fused(item, sum(1 / (k + rank) for rank in found.values()), found)
        for item, found in ranks.items()
    ]
    return sorted(fused, key=lambda one: (-one.score, min(one.ranks.values())))
