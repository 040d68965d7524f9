"""The entries of a bucket, and what its readers need from it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hocket.schemas.errors import ErrorClass, HocketError


class RevisionPassed(HocketError):
    """The key `{key}` was changed by someone else. Read it again before changing it."""

    code = "revision_passed"
    error_class = ErrorClass.TRANSIENT
    retryable = True


@dataclass(frozen=True, slots=True)
class Entry:
    """What a key holds; `value` is None after a deletion. `written_at_s` is on the clock of this
    process's event loop, converted from the server's clock for entries older than the watch."""

    key: str
    value: bytes | None
    revision: int
    written_at_s: float
    overwritten_at_s: float | None = None
    """When something foreign was first written over it; None if nothing was. `value` is then the one
    before (None if that is not known), and `revision` the newest."""

    @property
    def overwritten(self) -> bool:
        """Whether something foreign was written over the value."""
        return self.overwritten_at_s is not None


class Leases(Protocol):
    """The part of a bucket that its readers use."""

    changed: asyncio.Event
    current_since_s: float

    @property
    def entries(self) -> dict[str, Entry]: ...

    async def put(
        self, key: str, value: bytes | None, *, revision: int | None, timeout_ms: float
    ) -> int: ...


async def until_changed(leases: Leases, timeout_s: float) -> None:
    """Wait until something changes, but at most for `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            await leases.changed.wait()
    except TimeoutError:
        return


Expected = Callable[[str, bytes | None], bool]
"""Tells whether a key may hold a value; with None, whether such a key may exist."""
