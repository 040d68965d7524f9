"""What a bucket should not keep, removed one key at a time: keys that are not ours, for which a warning
is logged, and old deletions."""

import asyncio
import re
from typing import Any

import structlog

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable

API_TIMEOUT_MS = 5_000.0
MAX_LITTER = 1_000
"""Keys that may wait for their removal; others are removed once they are seen again."""
SWEEP_S = 0.05
"""Pause between two removals."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")
"""A key that names only itself: with `*` or `>` in it, a removal would match many keys."""

log = structlog.get_logger(__name__)


class Litter:
    """The foreign keys and old deletions of one bucket."""

    def __init__(self, bus: Bus, stream: str, prefix: str) -> None:
        self._bus = bus
        self._stream = stream
        self._prefix = prefix
        self._waiting: dict[str, int | None] = {}
        self._found = asyncio.Event()
        self._reports = Reporting(clock_s=asyncio.get_running_loop().time)

    def ignore(self, key: str) -> None:
        """Count an entry that is not ours, and log a warning at a limited rate."""
        if count := self._reports.due("foreign"):
            log.warning("bucket_entry_ignored", stream=self._stream, key=key[:200], count=count)

    def remove_later(self, key: str, revision: int | None = None) -> None:
        """Queue a key for removal, if it can be removed without affecting others. With `revision`,
        whatever was written after it stays."""
        if _PLAIN_KEY.fullmatch(key) and len(self._waiting) < MAX_LITTER:
            self._waiting[key] = revision
            self._found.set()

    async def remove_forever(self) -> None:
        """Remove what is queued, one key at a time; cancel to stop."""
        while True:
            await self._found.wait()
            key = next(iter(self._waiting), None)
            if key is None:
                self._found.clear()
                continue
            revision = self._waiting.pop(key)
            wanted: dict[str, Any] = {"filter": self._prefix + key}
            if revision is not None:
                wanted["seq"] = revision + 1  # the first one that stays
            try:
                await self._bus.api(
                    f"STREAM.PURGE.{self._stream}", wanted, timeout_ms=API_TIMEOUT_MS
                )
            except BusUnavailable as error:
                log.debug("bucket_not_swept", stream=self._stream, reason=str(error))
            except Exception:  # the server answers in a way that we do not know
                log.exception("bucket_sweep_failed", stream=self._stream)
            await asyncio.sleep(SWEEP_S)
