"""What is known about node types: custom types as described by their workers, within bounds, and the
live workers. Pure.
"""

from collections.abc import Iterator, Mapping

from hocket.admin.node_types.descriptions import believed
from hocket.admin.node_types.kept import KeptTypes, Key, KnownType
from hocket.schemas.messages import TypeDescribed, encoded
from hocket.schemas.subjects import pool_token, type_of
from hocket.schemas.worker_slots import MAX_TYPES as MAX_POOLS
from hocket.schemas.worker_slots import WorkerSlots

KEPT_FOR_MS = 90 * 86_400_000.0
"""A type that no worker has run for so long is forgotten."""


class KnownTypes:
    """The registry of one process; `kept` holds the descriptions."""

    def __init__(self) -> None:
        self.slots = WorkerSlots()
        self.kept = KeptTypes()
        self._types = self.kept.by_key
        self._runs: dict[str, dict[str, str]] = {}
        """For each live worker, the version of each type that it described."""

    # ---- what is heard ----------------------------------------------------------------------

    def announced(
        self, worker: str, slots: Mapping[str, int], now_ms: float, pool: str = ""
    ) -> None:
        """Record what a worker can run; empty `slots` if it leaves. `pool` is set for a worker that
        announces itself with a key."""
        self.slots.announced(worker, slots, now_ms, pool)
        if not slots:
            self._runs.pop(worker, None)

    def tick(self, now_ms: float) -> None:
        """Forget silent workers, and types that no worker has run for long."""
        for worker in self.slots.silent(now_ms):
            self.announced(worker, {}, now_ms)
        for worker in [worker for worker in self._runs if not self.slots.of(worker)]:
            del self._runs[worker]  # evicted in favour of another worker
        for key in self._live() & self._types.keys():
            self._types[key].last_seen_ms = now_ms
        for known in list(self._types.values()):
            if now_ms - known.last_seen_ms > KEPT_FOR_MS:
                self.kept.remove(known.key)

    def is_news(self, described: TypeDescribed) -> bool:
        """Tell whether a description says something new, which has to be checked."""
        known = self._types.get((described.type, described.version))
        return known is None or known.told != _nameless(described)

    def described(
        self, described: TypeDescribed, now_ms: float, *, has_key: bool = False
    ) -> KnownType | None:
        """Add what can be used of a description, and return it; None if there is no room for it. Raises
        ValueError if it is not that of a node type. `has_key`: it came from a worker with a key, which
        announces itself separately in each of its pools."""
        key = described.type, described.version
        if self.is_news(described):
            kept, config = believed(described)
            nameless = _nameless(described)
            size = len(encoded(kept)) + (len(encoded(nameless)) if kept.faults else 0)
            before = self._types.get(key)
            more_bytes = size - (before.size_bytes if before else 0)
            if not self.kept.make_room(key, more_bytes, self._live()):
                return None
            first_ms = before.first_seen_ms if before else now_ms
            known = KnownType(kept, size, first_ms, now_ms, config, nameless)
            self.kept.keep(known, is_stored=False)
        self._types[key].last_seen_ms = now_ms
        for worker in self._names_of(described, has_key=has_key):
            if any(type_of(pool) == key[0] for pool in self.slots.of(worker)):
                runs = self._runs.setdefault(worker, {})
                if key[0] in runs or len(runs) < MAX_POOLS:
                    runs[key[0]] = key[1]
        return self._types[key]

    def read_back(self, known: KnownType) -> None:
        """Add a description read from storage, unless it is already known."""
        if known.key not in self._types and self.kept.make_room(
            known.key, known.size_bytes, self._live()
        ):
            self.kept.keep(known, is_stored=True)

    # ---- what is asked ----------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all types, sorted."""
        return sorted({name for name, _ in self._types})

    def versions(self, name: str) -> list[KnownType]:
        """Return the versions of a type: those that workers run first, then the others, newest first in
        each group."""
        found = [known for key, known in self._types.items() if key[0] == name]
        live = {runs.get(name) for runs in self._runs.values()}
        return sorted(
            found,
            key=lambda known: (known.described.version in live, known.first_seen_ms),
            reverse=True,
        )

    def current(self, name: str) -> KnownType | None:
        """Return the version that pipelines are checked against; None for an unknown type."""
        return next(iter(self.versions(name)), None)

    def workers_of(self, name: str) -> Iterator[tuple[str, str | None, int, str]]:
        """Yield the workers that run a type: name, version if described, slots and pool."""
        for worker, slots in self.slots.workers():
            for pool, count in slots.items():
                if type_of(pool) == name:
                    yield worker, self._runs.get(worker, {}).get(name), count, pool

    # ---- helpers ----------------------------------------------------------------------------

    def _live(self) -> set[Key]:
        """Return the versions that workers run now."""
        return {key for runs in self._runs.values() for key in runs.items()}

    def _names_of(self, described: TypeDescribed, *, has_key: bool) -> Iterator[str]:
        """Yield the names under which a worker's slots for a type are counted."""
        if not has_key:
            yield described.worker
            return
        token = pool_token(described.type)
        for pool in self.slots.pools():
            if type_of(pool) == token:
                yield f"{described.worker}.{pool}"


def _nameless(described: TypeDescribed) -> TypeDescribed:
    return described.model_copy(update={"worker": ""})
