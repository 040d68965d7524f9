"""What a bucket holds, and what its readers need of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hocket.schemas.errors import ErrorClass, HocketError


class RevisionPassed(HocketError):
    """The key `{key}` was changed by somebody else. Look at it again before you change it."""

    code = "revision_passed"
    error_class = ErrorClass.TRANSIENT
    retryable = True


@dataclass(frozen=True, slots=True)
class Entry:
    """What a key holds: None after a deletion. `written_at_s` is on this process' loop clock, as far
    as the server's clock tells."""

    key: str
    value: bytes | None
    revision: int
    written_at_s: float
    overwritten_at_s: float | None = None
    """When something foreign was written over it first: `value` is the one before (None where that is
    not known), `revision` the newest."""

    @property
    def overwritten(self) -> bool:
        """Whether something foreign stands there."""
        return self.overwritten_at_s is not None


class Leases(Protocol):
    """What ownership needs of a bucket."""

    changed: asyncio.Event
    current_since_s: float

    @property
    def entries(self) -> dict[str, Entry]: ...

    async def put(
        self, key: str, value: bytes | None, *, revision: int | None, timeout_ms: float
    ) -> int: ...


async def until_changed(leases: Leases, timeout_s: float) -> None:
    """Wait until something changed, or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            await leases.changed.wait()
    except TimeoutError:
        return


Expected = Callable[[str, bytes | None], bool]
"""Whether a key may hold a value; with None, whether there may be such a key."""
