"""Descriptions of node types, within bounds. Pure.

A name has MAX_VERSIONS; of more, and of more bytes than MAX_BYTES, those that no worker runs and that
were seen longest ago make room. What workers run now makes no room.
"""

from collections.abc import Set
from dataclasses import dataclass, field

from hocket.schemas.json_schema.schema import Schema
from hocket.schemas.messages import TypeDescribed

MAX_TYPES = 1_000
"""Names of node types ..."""
MAX_VERSIONS = 8
"""... versions of each ..."""
MAX_BYTES = 16 * 1024 * 1024
"""... and what all descriptions come to."""
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


class KeptTypes:
    """Those of one process."""

    def __init__(self) -> None:
        self.by_key: dict[Key, KnownType] = {}
        self.changes = Changes()
        self._bytes = 0

    def keep(self, known: KnownType, *, is_stored: bool) -> None:
        """Keep a description, for which there is room."""
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
        """Forget what is not `live`, which nobody runs, until a version fits; tell whether it does."""
        while (among := self._too_many(key, more_bytes)) is not None:
            idle = [self.by_key[one] for one in among if one not in live and one != key]
            if not idle:
                return False
            self.remove(min(idle, key=lambda known: known.last_seen_ms).key)
        return True

    def _too_many(self, key: Key, more_bytes: int) -> list[Key] | None:
        """Return those of which one has to go; None where there is room."""
        if key not in self.by_key:
            versions = [one for one in self.by_key if one[0] == key[0]]
            if len(versions) >= MAX_VERSIONS:
                return versions
            if not versions and len({name for name, _ in self.by_key}) >= MAX_TYPES:
                return list(self.by_key)
        return list(self.by_key) if self._bytes + more_bytes > MAX_BYTES else None

    def taken_changes(self) -> tuple[list[KnownType], Changes]:
        """Return what is to be stored, and forget that it is."""
        changes, self.changes = self.changes, Changes()
        return [self.by_key[key] for key in changes.changed], changes

    def changes_again(self, changes: Changes) -> None:
        """Note changes again that could not be stored, as far as they still hold."""
        self.changes.changed |= changes.changed & self.by_key.keys()
        self.changes.removed |= changes.removed - self.by_key.keys()
