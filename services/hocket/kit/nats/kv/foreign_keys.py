"""Keys of a bucket that are not ours: they are removed one at a time, and a warning is logged."""

import asyncio
import re

import structlog

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable

API_TIMEOUT_MS = 5_000.0
MAX_LITTER = 1_000
"""Foreign keys that may wait for their removal; others are removed once they are seen again."""
SWEEP_S = 0.05
"""Pause between two removals."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")
"""A key that names only itself: with `*` or `>` in it, a removal would match many keys."""

log = structlog.get_logger(__name__)


class ForeignKeys:
    """The foreign keys of one bucket."""

    def __init__(self, bus: Bus, stream: str, prefix: str) -> None:
        self._bus = bus
        self._stream = stream
        self._prefix = prefix
        self._waiting: dict[str, None] = {}
        self._found = asyncio.Event()
        self._reports = Reporting(clock_s=asyncio.get_running_loop().time)

    def ignore(self, key: str) -> None:
        """Count an entry that is not ours, and log a warning at a limited rate."""
        if count := self._reports.due("foreign"):
            log.warning("bucket_entry_ignored", stream=self._stream, key=key[:200], count=count)

    def remove_later(self, key: str) -> None:
        """Queue a key for removal, if it can be removed without affecting others."""
        if _PLAIN_KEY.fullmatch(key) and len(self._waiting) < MAX_LITTER:
            self._waiting[key] = None
            self._found.set()

    async def remove_forever(self) -> None:
        """Remove foreign keys, one at a time; cancel to stop."""
        while True:
            await self._found.wait()
            key = next(iter(self._waiting), None)
            if key is None:
                self._found.clear()
                continue
            try:
                await self._bus.api(
                    f"STREAM.PURGE.{self._stream}",
                    {"filter": self._prefix + key},
                    timeout_ms=API_TIMEOUT_MS,
                )
            except BusUnavailable as error:
                log.debug("bucket_not_swept", stream=self._stream, reason=str(error))
            except Exception:  # the server answers in a way that we do not know
                log.exception("bucket_sweep_failed", stream=self._stream)
            self._waiting.pop(key, None)
            await asyncio.sleep(SWEEP_S)
