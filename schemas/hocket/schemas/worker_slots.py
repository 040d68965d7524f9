"""The slots that workers announce, added up by node type; who is silent is not counted any more."""

from collections.abc import Iterator, Mapping

from hocket.schemas.messages import WorkerAnnounced
from hocket.schemas.subjects import WORKER_ANNOUNCED, is_pool, pool_token

SILENT_MS = 7_000.0
"""A worker that has not announced itself for so long is not counted any more."""
MAX_WORKERS = 10_000
"""Workers that are counted; of more, those that came first."""
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
    token = subject.removeprefix(WORKER_ANNOUNCED).removeprefix(".")
    if not token:
        return announced
    slots = {pool: count for pool, count in announced.slots.items() if pool_token(pool) == token}
    return announced.model_copy(update={"worker": f"{announced.worker}.{token}", "slots": slots})


class WorkerSlots:
    """What each worker can do, and since when it is silent."""

    def __init__(self) -> None:
        self._workers: dict[str, tuple[float, Mapping[str, int]]] = {}
        self._slots: dict[str, int] = {}

    def slots(self, node_type: str) -> int:
        """Return what all of them announced for a type."""
        return self._slots.get(node_type, 0)

    def workers(self) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield the workers that are counted, with what each announced."""
        return ((worker, slots) for worker, (_, slots) in self._workers.items())

    def of(self, worker: str) -> Mapping[str, int]:
        """Return what a worker announced; nothing, where it is not counted."""
        known = self._workers.get(worker)
        return {} if known is None else known[1]

    def announced(self, worker: str, slots: Mapping[str, int], now_ms: float) -> set[str]:
        """Note what a worker can do; nothing, where it leaves. Returns the types that it
        changes."""
        known = self._workers.get(worker)
        if known is None and len(self._workers) >= MAX_WORKERS:
            return set()
        if slots:
            self._workers[worker] = (now_ms, dict(slots))
        else:
            self._workers.pop(worker, None)
        before = known[1] if known is not None else {}
        return self._recount(before, slots) if before != slots else set()

    def silent(self, now_ms: float) -> list[str]:
        """Return the workers that have not announced themselves for SILENT_MS."""
        return [w for w, (at_ms, _) in self._workers.items() if now_ms - at_ms > SILENT_MS]

    def hears_again(self, now_ms: float) -> None:
        """Count no silence before this moment: nobody could be heard."""
        self._workers = {w: (now_ms, slots) for w, (_, slots) in self._workers.items()}

    def _recount(self, before: Mapping[str, int], slots: Mapping[str, int]) -> set[str]:
        """Count what changed with one worker, whatever number of others there are."""
        changed = {*before, *slots}
        for node_type in changed:
            change = slots.get(node_type, 0) - before.get(node_type, 0)
            total = self._slots[node_type] = self._slots.get(node_type, 0) + change
            if not total:
                del self._slots[node_type]
        return changed
