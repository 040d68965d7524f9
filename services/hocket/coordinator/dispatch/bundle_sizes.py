"""How many steps of a pool may go in one message: as many as all of its workers accept. A worker
accepts one for each SLOTS_PER_STEP slots, and MAX_BUNDLED at most, so that no worker gets many
while others are idle."""

from hocket.schemas.messages import MAX_BUNDLED, WorkerAnnounced
from hocket.schemas.worker_slots import MAX_WORKERS, SILENT_MS, pool_of_subject

SLOTS_PER_STEP = 8


class BundleSizes:
    """Tracks what workers announce about bundles. A worker with a key accepts none: its results
    come another way."""

    def __init__(self) -> None:
        self._workers: dict[str, tuple[float, dict[str, int], bool]] = {}
        self._sizes: dict[str, int] | None = {}
        """By pool; None if they have to be counted again."""

    def of(self, pool: str) -> int:
        """Return how many steps a message for a pool may have."""
        if self._sizes is None:
            self._sizes = self._counted()
        return self._sizes.get(pool, 1)

    def announced(self, announced: WorkerAnnounced, subject: str, at_ms: float) -> None:
        """Note what a worker announced, and on which subject."""
        takes = announced.bundles and not pool_of_subject(subject)
        known = self._workers.get(announced.worker)
        if not announced.slots:
            if known is not None:
                del self._workers[announced.worker]
                self._sizes = None
        elif known is not None or len(self._workers) < MAX_WORKERS:
            self._workers[announced.worker] = (at_ms, announced.slots, takes)
            if known is None or known[1:] != (announced.slots, takes):
                self._sizes = None

    def hears_again(self, at_ms: float) -> None:
        """Count no silence before this moment."""
        self._workers = {
            name: (at_ms, slots, takes) for name, (_, slots, takes) in self._workers.items()
        }

    def tick(self, now_ms: float) -> None:
        """Forget silent workers."""
        silent = [name for name, said in self._workers.items() if now_ms - said[0] > SILENT_MS]
        for name in silent:
            del self._workers[name]
        if silent:
            self._sizes = None

    def _counted(self) -> dict[str, int]:
        """Return, by pool, the smallest number that one of its workers accepts."""
        sizes: dict[str, int] = {}
        for _, pools, takes in self._workers.values():
            for pool, slots in pools.items():
                taken = slots // SLOTS_PER_STEP if takes else 1
                sizes[pool] = max(1, min(sizes.get(pool, MAX_BUNDLED), taken))
        return sizes
