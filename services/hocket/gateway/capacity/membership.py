"""Which gateways live, and what they tell each other: one bucket that all of them write and watch.

Each gives a sign of life (`member.<name>`) every BEAT_S; who was not heard for LEASE_S is taken for
dead. A name is a process': one that is started again is somebody else. States: alone with its thoughts
(the watch is behind: nothing is decided), current. Our own lease holds while our last sign that was
stored is young enough that nobody can have missed it; without it nothing may be begun that a dead one
must not do. After the watch began anew, and after this process stood still, others get GRACE_S to be
heard.
"""

import asyncio
import json
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from hocket.gateway.core.routing.membership_records import MEMBER, parsed
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.nats.kv.entry import Entry, RevisionPassed, until_changed
from hocket.kit.process.lifecycle import Health

BEAT_S = 0.5
LEASE_S = 3.0
MARGIN_S = 0.5
"""How much earlier than all others a gateway takes itself for dead."""
GRACE_S = 1.5
TICK_S = 0.25
STALL_S = LEASE_S / 2
FIRST_BEAT_S = 0.02
FORGET_S = 30.0
PUT_TIMEOUT_MS = 2_000.0
MAX_NAME = 24
_MAX_STALE = 100
"""Keys that are read and not there any more, before all are read again."""
_NAME = re.compile("[^A-Za-z0-9_-]")
_NEVER = float("-inf")

log = structlog.get_logger()


def name_of(instance: str | None) -> str:
    """Return a name that no other gateway has, nor this one when it is started again."""
    known = _NAME.sub("-", instance or socket.gethostname())[:MAX_NAME]
    return f"{known}-{os.getpid()}-{secrets.token_hex(3)}"


class Membership:
    """See the module; `observe` what changes, inside `active`."""

    def __init__(self, leases: Bucket, health: Health, *, name: str) -> None:
        self.name = name
        self.live: frozenset[str] = frozenset()
        """Who lives, we included; empty until the bucket was read."""
        self._leases = leases
        self._health = health
        self._observers: list[Callable[[], None]] = []
        self._contents: dict[str, tuple[bytes | None, Any]] = {}
        self._forgetting: set[asyncio.Task[int | None]] = set()
        self._beaten_at_s = _NEVER
        """When our last sign of life that was stored was sent."""
        self._trusted_since_s = _NEVER
        self._current_since_s = _NEVER
        self._looked_at_s = _NEVER
        self._leaving = False
        self.joined = asyncio.Event()
        """Set once we were heard and have heard all there is."""

    @property
    def leads(self) -> bool:
        """Whether we are the one who does what only one should do."""
        return self.is_leased and min(self.live, default="") == self.name

    @property
    def is_leased(self) -> bool:
        """Whether nobody can take us for dead now."""
        now_s = asyncio.get_running_loop().time()
        return now_s - self._beaten_at_s < LEASE_S - MARGIN_S and not self._leaving

    @property
    def current_since_s(self) -> float:
        """Since when all that the others write was heard; what was known before may be gone."""
        return self._current_since_s

    def observe(self, look: Callable[[], None]) -> None:
        """Have `look` called after every change, and every TICK_S at the latest."""
        self._observers.append(look)

    def told(self, prefix: str) -> Iterator[tuple[str, int, Any]]:
        """Give what is under a prefix: the rest of each key, its revision, its content (None where it is
        not known, for something foreign stands there)."""
        for key, entry in self._leases.entries.items():
            if not key.startswith(prefix):
                continue
            content = self._content(entry)
            if content is not None or entry.overwritten:
                yield key.removeprefix(prefix), entry.revision, content

    def is_overwritten(self, key: str) -> bool:
        """Tell whether something foreign stands under a key: who wrote it should write it again."""
        entry = self._leases.entries.get(key)
        return entry is not None and entry.overwritten

    async def put(self, key: str, content: Any, *, revision: int | None = None) -> int | None:
        """Write a key (None deletes it) and return its revision; None where somebody else wrote it
        meanwhile, or NATS is away."""
        value = None if content is None else _encoded(content)
        try:
            return await self._leases.put(key, value, revision=revision, timeout_ms=PUT_TIMEOUT_MS)
        except (RevisionPassed, BusUnavailable) as error:
            log.debug("membership_write_failed", key=key, reason=str(error))
            return None

    @asynccontextmanager
    async def active(self, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Live inside the block, and be gone after it. Should that fail, `stopping` is set, and leaving
        the block raises why."""
        async with self._leases.watching():
            running = asyncio.create_task(self._run(), name="membership")
            running.add_done_callback(lambda _: stopping.set())
            try:
                yield
            finally:
                self._leaving = True
                await self.put(MEMBER + self.name, None)
                running.cancel()
                await asyncio.wait({running})
            if not running.cancelled():
                running.result()

    async def _run(self) -> None:
        beating = asyncio.create_task(self._beat_for_ever(), name="signs-of-life")
        try:
            while True:
                self._leases.changed.clear()
                self._look()
                await until_changed(self._leases, TICK_S)
        finally:
            beating.cancel()
            await asyncio.wait({beating})

    async def _beat_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._leaving:
            if self._current_since_s == _NEVER:  # the bucket may not be there yet
                await asyncio.sleep(FIRST_BEAT_S)
                continue
            sent_s = loop.time()
            if await self.put(MEMBER + self.name, {}) is not None:
                self._beaten_at_s = sent_s
                self._leases.changed.set()
            await asyncio.sleep(BEAT_S)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        stalled = now_s - self._looked_at_s > STALL_S
        self._looked_at_s = now_s
        current_since_s = self._leases.current_since_s
        if current_since_s != _NEVER:
            if current_since_s != self._current_since_s:
                first = self._current_since_s == _NEVER
                self._trusted_since_s = now_s + (GRACE_S - LEASE_S if first else 0.0)
                self._current_since_s = current_since_s
            elif stalled:  # what others wrote meanwhile is about to be heard
                self._trusted_since_s = max(self._trusted_since_s, now_s + GRACE_S - LEASE_S)
            self._count(now_s)
        self._health.report("membership", True, f"{len(self.live)} gateways")
        for look in self._observers:
            look()

    def _count(self, now_s: float) -> None:
        heard_at_s = {
            key.removeprefix(MEMBER): entry.written_at_s
            for key, entry in self._leases.entries.items()
            if key.startswith(MEMBER) and entry.value is not None
        }
        live = {
            name
            for name, at_s in heard_at_s.items()
            if now_s - max(at_s, self._trusted_since_s) <= LEASE_S
        }
        for name in self.live - live - {self.name}:
            log.info("gateway_gone", gateway=name)
        if self._beaten_at_s != _NEVER and not self._leaving:
            live.add(self.name)
            self.joined.set()
        self.live = frozenset(live)
        if self.leads:
            self._forget_dead(heard_at_s, now_s)

    def _forget_dead(self, heard_at_s: dict[str, float], now_s: float) -> None:
        for name, at_s in heard_at_s.items():
            if name not in self.live and now_s - at_s > FORGET_S:
                entry = self._leases.entries.pop(MEMBER + name)
                forgotten = self.put(MEMBER + name, None, revision=entry.revision)
                task = asyncio.create_task(forgotten)
                self._forgetting.add(task)
                task.add_done_callback(self._forgetting.discard)

    def _content(self, entry: Entry) -> Any:
        known = self._contents.get(entry.key)
        if known is None or known[0] is not entry.value:
            if len(self._contents) > 2 * len(self._leases.entries) + _MAX_STALE:
                self._contents.clear()
            known = self._contents[entry.key] = (entry.value, parsed(entry.value))
        return known[1]


def _encoded(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
