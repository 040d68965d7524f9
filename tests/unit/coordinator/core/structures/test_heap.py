"""The persistent heap gives entries in order and leaves the old ones as they were."""

from hypothesis import given
from hypothesis import strategies as st

from hocket.coordinator.core.structures.heap import Heap, pop, push


def drained(heap: Heap) -> list[int]:
    found = []
    while heap is not None:
        found.append(heap[1])
        heap = pop(heap)
    return found


@given(st.lists(st.integers()))
def test_entries_come_out_in_order(entries: list[int]) -> None:
    heap: Heap = None
    for entry in entries:
        heap = push(heap, entry)
    assert drained(heap) == sorted(entries)


@given(st.lists(st.integers(), min_size=1), st.integers())
def test_a_heap_stays_as_it_was(entries: list[int], more: int) -> None:
    heap: Heap = None
    for entry in entries:
        heap = push(heap, entry)
    push(heap, more)
    pop(heap)
    assert drained(heap) == sorted(entries)


def test_twenty_thousand_rising_entries_do_not_nest_too_deep() -> None:
    heap: Heap = None
    for entry in range(20_000):
        heap = push(heap, entry)
    assert drained(heap) == list(range(20_000))
