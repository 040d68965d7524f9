"""Keeps the recent cost of each kind of call, and the speed of engines, in the gateways' bucket of
budgets, so that a starting gateway knows what earlier ones learnt, and gateways learn from each
other.

The history of a kind is read when the first call under a budget needs it, and again from time to
time while none exists. It is written shortly after a call was learnt from: after each of the first
calls of a kind, later every KEEP_S. The last write wins. While NATS is unreachable nothing is kept.

Callers choose the names of pipelines and nodes, so the kinds of one tenant share PLACES keys: of two
kinds that have the same place, the one written last is kept.
"""

import asyncio
import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import structlog

from hocket.gateway.accounting.budget_store import HISTORY_KEYS, BudgetStore, key_of
from hocket.gateway.core.routing.history import ENOUGH, MAX_KINDS, MAX_SAMPLES, Kind
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.kv.entry import RevisionPassed
from hocket.kit.nats.streams import StreamRefused

WRITE_S = 0.25
KEEP_S = 30.0
"""How often the history of a well-known kind is written."""
READ_AGAIN_S = 10.0
KEPT_S = 30 * 86_400.0
PLACES = 1_024
"""The most histories of one tenant's kinds of calls in the bucket."""
DIGITS = 6
MAX_RATIO = 1e12
LISTS = ("ratios", "excess")
"""The numbers that are kept of a kind. An earlier release kept the first only, and ignores the other."""

log = structlog.get_logger()


class Learning(Protocol):
    """What was learnt from calls, by kind, as lists of numbers above 0 (LISTS)."""

    def count(self, kind: Kind) -> int:
        """Return how many calls of a kind were learned from."""
        ...

    def kept(self, kind: Kind) -> dict[str, list[float]]:
        """Return the history of a kind, for `restore`."""
        ...

    def restore(self, kind: Kind, kept: Mapping[str, list[float]]) -> None:
        """Add the history that `kept` returned for a kind."""
        ...


class CostHistory:
    """Keeps and restores what was learnt; `name` distinguishes it from other histories
    in the bucket."""

    def __init__(self, store: BudgetStore, learning: Learning, name: str = "ratios") -> None:
        self._store = store
        self._learning = learning
        self._name = name
        self._read_at_s: dict[Kind, float] = {}
        self._kept_at_s: dict[Kind, float] = {}
        self._learned: set[Kind] = set()
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def known(self, kind: Kind) -> None:
        """Restore the kept history of a kind and of its model, if there is none here yet."""
        for one in (kind, (kind[0], "", "")):
            if self._learning.count(one) or not self._is_due(one):
                continue
            with suppress(BusUnavailable):
                value, _ = await self._store.get(self._key(one))
                if not self._learning.count(one):  # a call may have been learnt from meanwhile
                    self._learning.restore(one, _kept(value, one))

    def learned(self, kind: Kind) -> None:
        """Write the history of a kind and of its model a moment later."""
        loop = asyncio.get_running_loop()
        for one in (kind, (kind[0], "", "")):
            kept_at_s = self._kept_at_s.get(one, float("-inf"))
            if self._learning.count(one) <= ENOUGH or loop.time() - kept_at_s > KEEP_S:
                self._learned.add(one)
        if self._learned and self._timer is None and self._writing is None:
            self._timer = loop.call_later(WRITE_S, self._write_soon)

    async def close(self, timeout_s: float) -> None:
        """Write what was learnt last, within `timeout_s`."""
        if self._timer is not None:
            self._timer.cancel()
            self._write_soon()
        if (writing := self._writing) is not None:
            await asyncio.wait({writing}, timeout=timeout_s)
            writing.cancel()

    def _is_due(self, kind: Kind) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._read_at_s.get(kind, float("-inf")) < READ_AGAIN_S:
            return False
        if len(self._read_at_s) >= MAX_KINDS:
            self._read_at_s.clear()
        self._read_at_s[kind] = now_s
        return True

    def _write_soon(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write(), name="cost history")
        self._writing.add_done_callback(self._written)

    def _written(self, task: "asyncio.Task[None]") -> None:
        self._writing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("cost_history_not_kept", reason=repr(error))

    async def _write(self) -> None:
        while self._learned:
            kind = self._learned.pop()
            if len(self._kept_at_s) >= MAX_KINDS:
                self._kept_at_s.clear()
            self._kept_at_s[kind] = asyncio.get_running_loop().time()
            content = {"kind": kind, **self._learning.kept(kind)}
            encoded = json.dumps(content, default=str, separators=(",", ":")).encode()
            try:
                _, revision = await self._store.get(self._key(kind))
                await self._store.put(self._key(kind), encoded, revision, KEPT_S, HISTORY_KEYS)
            except RevisionPassed:
                continue  # another gateway has a longer history
            except PublishRefused:
                continue  # there is no room for another kind, but for those that are kept
            except (BusUnavailable, StreamRefused) as error:
                log.debug("cost_history_not_kept", reason=str(error))
                return

    def _key(self, kind: Kind) -> str:
        tenant, _, named = kind[1].partition("/")
        if not tenant:  # a whole model or backend: an operator chose its name
            return key_of(self._name, *kind)
        told = "\0".join((kind[0], named, kind[2])).encode("utf-8", "surrogatepass")
        return key_of(self._name, tenant, str(zlib.crc32(told) % PLACES))


def _kept(value: bytes | None, kind: Kind) -> dict[str, list[float]]:
    """Return what is kept of a kind; nothing if it cannot be read."""
    nothing: dict[str, list[float]] = {name: [] for name in LISTS}
    try:
        content: Any = json.loads(value or b"null")
        if content is None or content["kind"] != list(kind):
            return nothing
        return {name: _numbers(content.get(name, ())) for name in LISTS}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return nothing


def _numbers(found: Any) -> list[float]:
    return [one for one in map(float, found) if 0 < one <= MAX_RATIO][-MAX_SAMPLES:]
