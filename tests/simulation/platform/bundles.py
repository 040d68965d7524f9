"""Plays whose steps go to the workers in bundles, however long they take and however few the slots are.

A play whose seed begins with BUNDLES is one of these. In every other one of them a worker announces that
it takes bundles, and knows nothing of them: so does one that came in the place of another, unheard.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from hocket.coordinator.dispatch import bundle_sizes, bundles
from hocket.workers.runtime.execution.worker import Worker
from simulation.engine.world import Process

BUNDLES = "bundles"
SLOTS_PER_STEP = 0.5
"""More come at once than there are slots."""


def is_bundling(seed: str) -> bool:
    return seed.startswith(BUNDLES)


@contextmanager
def bundling(seed: str) -> Iterator[None]:
    """Bundle what goes out at once, in plays with bundles."""
    if not is_bundling(seed):
        yield
        return
    with (
        mock.patch.object(bundle_sizes, "SLOTS_PER_STEP", SLOTS_PER_STEP),
        mock.patch.object(bundles, "MAX_WORK_MS", float("inf")),
    ):
        yield


def know_none(worker: Worker, process: Process) -> None:
    """Let a worker be of a release that knows no bundles."""
    seed = process.world.seed
    if is_bundling(seed) and process.name == "worker-1" and int(seed.rpartition("-")[2]) % 2:
        for pool in worker._pools:
            pool._arrivals._takes_bundles = False
