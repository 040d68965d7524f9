"""A min-heap that is never changed: a new one costs O(log n), and the old one stays as it was.

A leftist tree (Crane 1972; Okasaki, Purely Functional Data Structures, 1998): the way down the right
side is at most log2(n + 1) long, and all work is done along it. Entries compare with `<`. Nothing is
ever taken out of the middle: who puts an entry in knows when it is stale, and drops it at the top.
"""

from typing import Any

Heap = tuple[int, Any, Any, Any] | None
"""Rank, least entry, left and right heap; None is the empty one."""


def push(heap: Heap, entry: Any) -> Heap:
    """Return the heap with one more entry."""
    return _merged((1, entry, None, None), heap)


def pop(heap: Heap) -> Heap:
    """Return a heap that is not empty without its least entry."""
    assert heap is not None, "nothing to pop"
    return _merged(heap[2], heap[3])


def _merged(one: Heap, other: Heap) -> Heap:
    if one is None:
        return other
    if other is None:
        return one
    if other[1] < one[1]:
        one, other = other, one
    left, right = one[2], _merged(one[3], other)
    assert right is not None
    if left is None or left[0] < right[0]:
        left, right = right, left
    return (right[0] + 1 if right is not None else 1, one[1], left, right)
