"""What is known of node types: those of somebody's own as their workers described them, within bounds,
and the workers that live. Pure.

A description is what anybody who reaches NATS may say, so it is checked before it is kept: name, size,
and schemas that can be compiled.
"""

from collections.abc import Iterator, Mapping

from hocket.admin.node_types.kept import KeptTypes, Key, KnownType
from hocket.schemas.json_schema.schema import Schema, compile_schema
from hocket.schemas.messages import TypeDescribed, encoded
from hocket.schemas.pipeline.spec import MAX_TIMEOUT_MS
from hocket.schemas.subjects import TOKEN, is_own_type, pool_token, type_of
from hocket.schemas.worker_slots import MAX_TYPES as MAX_POOLS
from hocket.schemas.worker_slots import WorkerSlots

KEPT_FOR_MS = 90 * 86_400_000.0
"""A type that no worker ran for so long is forgotten."""


class KnownTypes:
    """The registry of one process; `kept` has the descriptions."""

    def __init__(self) -> None:
        self.slots = WorkerSlots()
        self.kept = KeptTypes()
        self._types = self.kept.by_key
        self._runs: dict[str, dict[str, str]] = {}
        """By worker that lives: the version of each type that it described."""

    # ---- what is heard ----------------------------------------------------------------------

    def announced(
        self, worker: str, slots: Mapping[str, int], now_ms: float, pool: str = ""
    ) -> None:
        """Note what a worker can do; nothing, where it leaves. `pool` is that of whoever announces
        himself with a key."""
        self.slots.announced(worker, slots, now_ms, pool)
        if not slots:
            self._runs.pop(worker, None)

    def tick(self, now_ms: float) -> None:
        """Forget workers that are silent, and types that nobody ran for long."""
        for worker in self.slots.silent(now_ms):
            self.announced(worker, {}, now_ms)
        for worker in [worker for worker in self._runs if not self.slots.of(worker)]:
            del self._runs[worker]  # it made room for another
        for key in self._live() & self._types.keys():
            self._types[key].last_seen_ms = now_ms
        for known in list(self._types.values()):
            if now_ms - known.last_seen_ms > KEPT_FOR_MS:
                self.kept.remove(known.key)

    def is_news(self, described: TypeDescribed) -> bool:
        """Tell whether a description says something new, which has to be checked."""
        known = self._types.get((described.type, described.version))
        return known is None or known.described != _nameless(described)

    def described(self, described: TypeDescribed, now_ms: float, *, has_key: bool = False) -> bool:
        """Take a checked description up; tell whether there was room for it. `has_key`: it is of a
        worker that announces itself as one of each of its pools."""
        key = described.type, described.version
        if self.is_news(described):
            nameless = _nameless(described)
            size = len(encoded(nameless))
            before = self._types.get(key)
            more_bytes = size - (before.size_bytes if before else 0)
            if not self.kept.make_room(key, more_bytes, self._live()):
                return False
            first_ms = before.first_seen_ms if before else now_ms
            known = KnownType(nameless, size, first_ms, now_ms, config_of(nameless))
            self.kept.keep(known, is_stored=False)
        self._types[key].last_seen_ms = now_ms
        for worker in self._names_of(described, has_key=has_key):
            if any(type_of(pool) == key[0] for pool in self.slots.of(worker)):
                runs = self._runs.setdefault(worker, {})
                if key[0] in runs or len(runs) < MAX_POOLS:
                    runs[key[0]] = key[1]
        return True

    def read_back(self, known: KnownType) -> None:
        """Take up what was stored before, unless it is known by now."""
        if known.key not in self._types and self.kept.make_room(
            known.key, known.size_bytes, self._live()
        ):
            self.kept.keep(known, is_stored=True)

    # ---- what is asked ----------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all types, sorted."""
        return sorted({name for name, _ in self._types})

    def versions(self, name: str) -> list[KnownType]:
        """Return the versions of a type: those that workers run first, the newest before older ones."""
        found = [known for key, known in self._types.items() if key[0] == name]
        live = {runs.get(name) for runs in self._runs.values()}
        return sorted(
            found,
            key=lambda known: (known.described.version in live, known.first_seen_ms),
            reverse=True,
        )

    def current(self, name: str) -> KnownType | None:
        """Return the version that pipelines are checked against; None for a type that is not known."""
        return next(iter(self.versions(name)), None)

    def workers_of(self, name: str) -> Iterator[tuple[str, str | None, int, str]]:
        """Yield the workers that run a type: name, version where described, slots, and the pool."""
        for worker, slots in self.slots.workers():
            for pool, count in slots.items():
                if type_of(pool) == name:
                    yield worker, self._runs.get(worker, {}).get(name), count, pool

    # ---- helpers ----------------------------------------------------------------------------

    def _live(self) -> set[Key]:
        """Return the versions that workers run now."""
        return {key for runs in self._runs.values() for key in runs.items()}

    def _names_of(self, described: TypeDescribed, *, has_key: bool) -> Iterator[str]:
        """Yield the names by which the slots of a worker are counted that can be of a type."""
        if not has_key:
            yield described.worker
            return
        token = pool_token(described.type)
        for pool in self.slots.pools():
            if type_of(pool) == token:
                yield f"{described.worker}.{pool}"


def check(described: TypeDescribed) -> None:
    """Raise InvalidInput or ValueError where this can be no node type."""
    if not is_own_type(described.type):
        raise ValueError("its name is none of a node type of somebody's own")
    if not TOKEN.fullmatch(described.version):
        raise ValueError("its version is none")
    if described.timeout_ms is not None and described.timeout_ms > MAX_TIMEOUT_MS:
        raise ValueError("its timeout is longer than any attempt's")
    if b"\\u0000" in encoded(described):
        raise ValueError("it has the character U+0000, which is not stored")
    for name in ("config", "input", "output"):
        schema = getattr(described, name)
        if schema is not None:
            compile_schema(schema, name)


def config_of(described: TypeDescribed) -> Schema | None:
    """Return the schema of a node's config, ready to check; None where anything goes."""
    return None if described.config is None else compile_schema(described.config, "config")


def _nameless(described: TypeDescribed) -> TypeDescribed:
    return described.model_copy(update={"worker": ""})
