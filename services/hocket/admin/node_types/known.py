"""What is known of node types: those of somebody's own as their workers described them, within bounds,
and the workers that live. Pure.

A description is what anybody who reaches NATS may say, so it is checked before it is kept: name, size,
and schemas that can be compiled. A name has MAX_VERSIONS; of more, and of more bytes than MAX_BYTES,
those that no worker runs and that were seen longest ago make room. What workers run now makes no room.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hocket.schemas.json_schema.schema import Schema, compile_schema
from hocket.schemas.messages import TypeDescribed, encoded
from hocket.schemas.pipeline.spec import MAX_TIMEOUT_MS
from hocket.schemas.subjects import TOKEN, is_own_type, pool_token, type_of
from hocket.schemas.worker_slots import MAX_TYPES as MAX_POOLS
from hocket.schemas.worker_slots import WorkerSlots

MAX_TYPES = 1_000
"""Names of node types ..."""
MAX_VERSIONS = 8
"""... versions of each ..."""
MAX_BYTES = 16 * 1024 * 1024
"""... and what all descriptions come to."""
KEPT_FOR_MS = 90 * 86_400_000.0
"""A type that no worker ran for so long is forgotten."""

Key = tuple[str, str]
"""A type's name and version."""


@dataclass(slots=True)
class KnownType:
    """A version of a type; `described` names no worker."""

    described: TypeDescribed
    size_bytes: int
    first_seen_ms: float
    last_seen_ms: float
    config: Schema | None = None

    @property
    def key(self) -> Key:
        return self.described.type, self.described.version


@dataclass(slots=True)
class Changes:
    """What of the registry is not stored yet."""

    changed: set[Key] = field(default_factory=set)
    removed: set[Key] = field(default_factory=set)


class KnownTypes:
    """The registry of one process."""

    def __init__(self) -> None:
        self.slots = WorkerSlots()
        self._types: dict[Key, KnownType] = {}
        self._runs: dict[str, dict[str, str]] = {}
        """By worker that lives: the version of each type that it described."""
        self._bytes = 0
        self.changes = Changes()

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
        live = {key for runs in self._runs.values() for key in runs.items()}
        for key in live & self._types.keys():
            self._types[key].last_seen_ms = now_ms
        for known in list(self._types.values()):
            if now_ms - known.last_seen_ms > KEPT_FOR_MS:
                self._remove(known.key)

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
            if not self._make_room(key, size - (before.size_bytes if before else 0)):
                return False
            first_ms = before.first_seen_ms if before else now_ms
            self._keep(KnownType(nameless, size, first_ms, now_ms, config_of(nameless)))
            self.changes.changed.add(key)
            self.changes.removed.discard(key)
        self._types[key].last_seen_ms = now_ms
        for worker in self._names_of(described, has_key=has_key):
            if any(type_of(pool) == key[0] for pool in self.slots.of(worker)):
                runs = self._runs.setdefault(worker, {})
                if key[0] in runs or len(runs) < MAX_POOLS:
                    runs[key[0]] = key[1]
        return True

    def read_back(self, known: KnownType) -> None:
        """Take up what was stored before, unless it is known by now."""
        if known.key not in self._types and self._make_room(known.key, known.size_bytes):
            self._keep(known)

    def taken_changes(self) -> tuple[list[KnownType], Changes]:
        """Return what is to be stored, and forget that it is."""
        changes, self.changes = self.changes, Changes()
        return [self._types[key] for key in changes.changed], changes

    def changes_again(self, changes: Changes) -> None:
        """Note changes again that could not be stored, as far as they still hold."""
        self.changes.changed |= changes.changed & self._types.keys()
        self.changes.removed |= changes.removed - self._types.keys()

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

    def _names_of(self, described: TypeDescribed, *, has_key: bool) -> Iterator[str]:
        """Yield the names by which the slots of a worker are counted that can be of a type."""
        if not has_key:
            yield described.worker
            return
        token = pool_token(described.type)
        for pool in self.slots.pools():
            if type_of(pool) == token:
                yield f"{described.worker}.{pool}"

    def _keep(self, known: KnownType) -> None:
        before = self._types.get(known.key)
        self._bytes += known.size_bytes - (before.size_bytes if before else 0)
        self._types[known.key] = known

    def _remove(self, key: Key) -> None:
        self._bytes -= self._types.pop(key).size_bytes
        self.changes.changed.discard(key)
        self.changes.removed.add(key)

    def _make_room(self, key: Key, more_bytes: int) -> bool:
        """Forget what nobody runs until a version fits; tell whether it does."""
        while (among := self._too_many(key, more_bytes)) is not None:
            live = {one for runs in self._runs.values() for one in runs.items()}
            idle = [self._types[one] for one in among if one not in live and one != key]
            if not idle:
                return False
            self._remove(min(idle, key=lambda known: known.last_seen_ms).key)
        return True

    def _too_many(self, key: Key, more_bytes: int) -> list[Key] | None:
        """Return those of which one has to go; None where there is room."""
        if key not in self._types:
            versions = [one for one in self._types if one[0] == key[0]]
            if len(versions) >= MAX_VERSIONS:
                return versions
            if not versions and len({name for name, _ in self._types}) >= MAX_TYPES:
                return list(self._types)
        return list(self._types) if self._bytes + more_bytes > MAX_BYTES else None


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
