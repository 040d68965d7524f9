"""Plays whose steps are sent to workers in bundles, however long they take and however few slots there
are.

These are the plays whose seed begins with BUNDLES. In every other one of them, one worker announces
that it takes bundles but does not know them, like an older worker that has replaced another one
unnoticed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from hocket.coordinator.dispatch import bundle_sizes, bundles
from hocket.workers.runtime.execution.worker import Worker
from simulation.engine.world import Process

BUNDLES = "bundles"


class HalfASlot:
    """What slots are divided by: more steps are sent at a time than there are slots."""

    def __rfloordiv__(self, slots: int) -> int:
        return 2 * slots


def is_bundling(seed: str) -> bool:
    return seed.startswith(BUNDLES)


@contextmanager
def bundling(seed: str) -> Iterator[None]:
    """In plays with bundles, bundle steps that are dispatched at the same time."""
    if not is_bundling(seed):
        yield
        return
    with (
        mock.patch.object(bundle_sizes, "SLOTS_PER_STEP", HalfASlot()),
        mock.patch.object(bundles, "MAX_WORK_MS", float("inf")),
    ):
        yield


def know_none(worker: Worker, process: Process) -> None:
    """Make a worker behave like a release that does not know bundles."""
    seed = process.world.seed
    if is_bundling(seed) and process.name == "worker-1" and int(seed.rpartition("-")[2]) % 2:
        for pool in worker._pools:
            pool._arrivals._takes_bundles = False
