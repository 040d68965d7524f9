"""The slots that workers announce, added up by node type; who is silent is not counted any more."""

from collections.abc import Iterator, Mapping

from hocket.schemas.messages import WorkerAnnounced
from hocket.schemas.subjects import WORKER_ANNOUNCED, is_pool, pool_token

SILENT_MS = 7_000.0
"""A worker that has not announced itself for so long is not counted any more."""
MAX_WORKERS = 10_000
"""Workers that are counted. Beyond that one of the pool whose bearers of keys announced most makes room
for any of another pool, and for any of the platform's own, which make room for nobody."""
MAX_TYPES = 64
"""Node types of one worker, each queue counted ..."""
MAX_SLOTS = 100_000
"""... and slots of each."""


def is_worker(announced: WorkerAnnounced) -> bool:
    """Tell whether a worker can be so: a name, and within bounds the node types and slots of
    each."""
    return (
        bool(announced.worker)
        and len(announced.slots) <= MAX_TYPES
        and all(
            is_pool(pool) and 0 <= slots <= MAX_SLOTS for pool, slots in announced.slots.items()
        )
    )


def of_subject(announced: WorkerAnnounced, subject: str) -> WorkerAnnounced:
    """Return what counts of an announcement: on a subject of a pool
    (`hocket.worker.announced.<pool>`), on which the bearer of a key announces himself, only that
    pool, of a worker by that name who is nobody else."""
    token = pool_of_subject(subject)
    if not token:
        return announced
    slots = {pool: count for pool, count in announced.slots.items() if pool_token(pool) == token}
    return announced.model_copy(update={"worker": f"{announced.worker}.{token}", "slots": slots})


def pool_of_subject(subject: str) -> str:
    """Return the pool, as it stands in subjects, on whose subject an announcement came; nothing for the
    subject of the platform's own workers."""
    return subject.removeprefix(WORKER_ANNOUNCED).removeprefix(".")


class WorkerSlots:
    """What each worker can do, and since when it is silent."""

    def __init__(self) -> None:
        self._workers: dict[str, tuple[float, Mapping[str, int], str]] = {}
        """When each was heard, its slots, and the pool as which it announces itself, if with a key."""
        self._slots: dict[str, int] = {}
        self._pools: dict[str, dict[str, None]] = {}
        """Those with a key by that pool, in the order they came."""

    def slots(self, node_type: str) -> int:
        """Return what all of them announced for a type."""
        return self._slots.get(node_type, 0)

    def workers(self) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield the workers that are counted, with what each announced."""
        return ((worker, slots) for worker, (_, slots, _) in self._workers.items())

    def of(self, worker: str) -> Mapping[str, int]:
        """Return what a worker announced; nothing, where it is not counted."""
        known = self._workers.get(worker)
        return {} if known is None else known[1]

    def pools(self) -> Iterator[str]:
        """Yield the pools as which bearers of keys announce themselves, as they stand in subjects."""
        return iter(self._pools)

    def announced(
        self, worker: str, slots: Mapping[str, int], now_ms: float, pool: str = ""
    ) -> set[str]:
        """Note what a worker can do; nothing, where it leaves. `pool` is that of whoever announces
        himself with a key. Returns the types that it changes."""
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
        """Count no silence before this moment: nobody could be heard."""
        self._workers = {w: (now_ms, slots, pool) for w, (_, slots, pool) in self._workers.items()}

    def _crowd(self, pool: str) -> Mapping[str, None] | None:
        """Return the workers of which one makes room for one of a pool; None where none does."""
        fullest = max(self._pools, key=lambda name: len(self._pools[name]), default=None)
        if fullest is None:
            return None
        own = len(self._pools.get(pool, ())) if pool else 0
        return self._pools[fullest] if len(self._pools[fullest]) > own + bool(pool) else None

    def _dropped(self, worker: str) -> set[str]:
        """Count a worker no more."""
        _, before, pool = self._workers.pop(worker)
        if pool:
            del self._pools[pool][worker]
            if not self._pools[pool]:
                del self._pools[pool]
        return self._recount(before, {})

    def _recount(self, before: Mapping[str, int], slots: Mapping[str, int]) -> set[str]:
        """Count what changed with one worker, whatever number of others there are."""
        changed = {*before, *slots}
        for node_type in changed:
            change = slots.get(node_type, 0) - before.get(node_type, 0)
            total = self._slots[node_type] = self._slots.get(node_type, 0) + change
            if not total:
                del self._slots[node_type]
        return changed
