"""A bounded store of node type descriptions. Pure.

A name has at most MAX_VERSIONS, and all descriptions together at most MAX_BYTES. Beyond that, versions
that no worker runs are evicted, least recently seen first. Versions that workers run are never evicted.
"""

from collections.abc import Set
from dataclasses import dataclass, field

from hocket.admin.node_types.descriptions import Description
from hocket.schemas.json_schema.schema import Schema
from hocket.schemas.messages import TypeDescribed

MAX_TYPES = 1_000
"""The maximum number of node type names ..."""
MAX_VERSIONS = 8
"""... versions of each ..."""
MAX_BYTES = 16 * 1024 * 1024
"""... and the total size of all descriptions."""
Key = tuple[str, str]
"""A type's name and version."""


@dataclass(slots=True)
class KnownType:
    """A version of a type. `config` is the compiled schema of its configs; `told` is what a worker
    said last, without its name, None if that is not known."""

    described: Description
    size_bytes: int
    first_seen_ms: float
    last_seen_ms: float
    config: Schema | None = None
    told: TypeDescribed | None = None

    @property
    def key(self) -> Key:
        return self.described.type, self.described.version


@dataclass(slots=True)
class Changes:
    """Changes of the registry that are not stored yet."""

    changed: set[Key] = field(default_factory=set)
    removed: set[Key] = field(default_factory=set)


class KeptTypes:
    """The descriptions kept by one process."""

    def __init__(self) -> None:
        self.by_key: dict[Key, KnownType] = {}
        self.changes = Changes()
        self._bytes = 0

    def keep(self, known: KnownType, *, is_stored: bool) -> None:
        """Keep a description; there must be room for it."""
        before = self.by_key.get(known.key)
        self._bytes += known.size_bytes - (before.size_bytes if before else 0)
        self.by_key[known.key] = known
        if not is_stored:
            self.changes.changed.add(known.key)
            self.changes.removed.discard(known.key)

    def remove(self, key: Key) -> None:
        """Forget a description."""
        self._bytes -= self.by_key.pop(key).size_bytes
        self.changes.changed.discard(key)
        self.changes.removed.add(key)

    def make_room(self, key: Key, more_bytes: int, live: Set[Key]) -> bool:
        """Evict versions that are not `live` (run by no worker) until a version fits; tell whether it
        does."""
        while (among := self._too_many(key, more_bytes)) is not None:
            idle = [self.by_key[one] for one in among if one not in live and one != key]
            if not idle:
                return False
            self.remove(min(idle, key=lambda known: known.last_seen_ms).key)
        return True

    def _too_many(self, key: Key, more_bytes: int) -> list[Key] | None:
        """Return the versions of which one has to be evicted, or None if there is room."""
        if key not in self.by_key:
            versions = [one for one in self.by_key if one[0] == key[0]]
            if len(versions) >= MAX_VERSIONS:
                return versions
            if not versions and len({name for name, _ in self.by_key}) >= MAX_TYPES:
                return list(self.by_key)
        return list(self.by_key) if self._bytes + more_bytes > MAX_BYTES else None

    def taken_changes(self) -> tuple[list[KnownType], Changes]:
        """Return the changes that have to be stored, and clear them."""
        changes, self.changes = self.changes, Changes()
        return [self.by_key[key] for key in changes.changed], changes

    def changes_again(self, changes: Changes) -> None:
        """Put back changes that could not be stored, as far as they are still current."""
        self.changes.changed |= changes.changed & self.by_key.keys()
        self.changes.removed |= changes.removed - self.by_key.keys()
