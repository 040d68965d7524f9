"""Adds up the slots that workers announce, by node type; silent workers no longer count."""

from collections.abc import Iterator, Mapping

from hocket.schemas.messages import WorkerAnnounced
from hocket.schemas.subjects import WORKER_ANNOUNCED, is_pool, pool_token

SILENT_MS = 7_000.0
"""A worker that has not announced itself for this long no longer counts."""
MAX_WORKERS = 10_000
"""The most workers that are counted. Beyond that, a worker with a key, of the pool that has the most of
them, makes room for one of another pool or of the platform; the platform's own never make room."""
MAX_TYPES = 64
"""The most pairs of node type and queue of one worker ..."""
MAX_SLOTS = 100_000
"""... and the most slots of each."""


def is_worker(announced: WorkerAnnounced) -> bool:
    """Tell whether an announcement is plausible: a name, and node types and slots within bounds."""
    return (
        bool(announced.worker)
        and len(announced.slots) <= MAX_TYPES
        and all(
            is_pool(pool) and 0 <= slots <= MAX_SLOTS for pool, slots in announced.slots.items()
        )
    )


def of_subject(announced: WorkerAnnounced, subject: str) -> WorkerAnnounced:
    """Return the part of an announcement that counts. On a pool's subject
    (`hocket.worker.announced.<pool>`), which workers with a key use, only that pool counts, for a worker
    whose name includes the pool, so that it cannot be taken for another."""
    token = pool_of_subject(subject)
    if not token:
        return announced
    slots = {pool: count for pool, count in announced.slots.items() if pool_token(pool) == token}
    return announced.model_copy(update={"worker": f"{announced.worker}.{token}", "slots": slots})


def pool_of_subject(subject: str) -> str:
    """Return the pool (as one token) on whose subject an announcement came; empty for the subject of the
    platform's own workers."""
    return subject.removeprefix(WORKER_ANNOUNCED).removeprefix(".")


class WorkerSlots:
    """The slots of each worker, and when it was last heard."""

    def __init__(self) -> None:
        self._workers: dict[str, tuple[float, Mapping[str, int], str]] = {}
        """By worker: when it was last heard, its slots, and, with a key, the pool that it announced."""
        self._slots: dict[str, int] = {}
        self._pools: dict[str, dict[str, None]] = {}
        """The workers with a key, by that pool, in order of arrival."""

    def slots(self, node_type: str) -> int:
        """Return the total of announced slots for a type."""
        return self._slots.get(node_type, 0)

    def workers(self) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield the counted workers, with the slots of each."""
        return ((worker, slots) for worker, (_, slots, _) in self._workers.items())

    def of(self, worker: str) -> Mapping[str, int]:
        """Return the slots of a worker; empty if it is not counted."""
        known = self._workers.get(worker)
        return {} if known is None else known[1]

    def pools(self) -> Iterator[str]:
        """Yield the pools (as tokens) that workers with a key have announced."""
        return iter(self._pools)

    def announced(
        self, worker: str, slots: Mapping[str, int], now_ms: float, pool: str = ""
    ) -> set[str]:
        """Record a worker's slots, which are empty when it leaves, and return the types that change.
        `pool` is that of a worker with a key."""
        known, changed = self._workers.get(worker), set[str]()
        if known is not None and (not slots or pool != known[2]):
            known, changed = None, self._dropped(worker)
        if not slots:
            return changed
        if known is None:
            if len(self._workers) >= MAX_WORKERS:
                crowd = self._crowd(pool)
                if crowd is None:
                    return changed
                changed |= self._dropped(next(iter(crowd)))
            if pool:
                self._pools.setdefault(pool, {})[worker] = None
        before = known[1] if known is not None else {}
        self._workers[worker] = (now_ms, dict(slots), pool)
        return changed | self._recount(before, slots) if before != slots else changed

    def silent(self, now_ms: float) -> list[str]:
        """Return the workers that have not announced themselves for SILENT_MS."""
        return [w for w, (at_ms, *_) in self._workers.items() if now_ms - at_ms > SILENT_MS]

    def hears_again(self, now_ms: float) -> None:
        """Do not count silence before this moment, because nobody could be heard until then."""
        self._workers = {w: (now_ms, slots, pool) for w, (_, slots, pool) in self._workers.items()}

    def _crowd(self, pool: str) -> Mapping[str, None] | None:
        """Return the workers one of which must make room for a worker of a pool, or None."""
        fullest = max(self._pools, key=lambda name: len(self._pools[name]), default=None)
        if fullest is None:
            return None
        own = len(self._pools.get(pool, ())) if pool else 0
        return self._pools[fullest] if len(self._pools[fullest]) > own + bool(pool) else None

    def _dropped(self, worker: str) -> set[str]:
        """Stop counting a worker; return the types that change."""
        _, before, pool = self._workers.pop(worker)
        if pool:
            del self._pools[pool][worker]
            if not self._pools[pool]:
                del self._pools[pool]
        return self._recount(before, {})

    def _recount(self, before: Mapping[str, int], slots: Mapping[str, int]) -> set[str]:
        """Update the totals for one worker in time independent of the number of others; return the types
        that change."""
        changed = {*before, *slots}
        for node_type in changed:
            change = slots.get(node_type, 0) - before.get(node_type, 0)
            total = self._slots[node_type] = self._slots.get(node_type, 0) + change
            if not total:
                del self._slots[node_type]
        return changed
