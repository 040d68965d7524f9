"""Which gateways live, and what they tell each other: one bucket that all of them write and watch.

Each gives a sign of life (`member.<name>`) every BEAT_S; one that was not heard for LEASE_S is taken
for dead. A name is a process': one that is started again is somebody else. States: behind (the bucket's
watch is: nothing is decided), current. Our own lease holds while our last sign that was
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
from hocket.kit.nats.kv.entry import RevisionPassed, until_changed
from hocket.kit.nats.membership import (
    NEVER,
    Contents,
    Liveness,
    beat_for_ever,
    take_out_dead,
)
from hocket.kit.process.lifecycle import Health
from hocket.kit.process.task_stop import stop_tasks

BEAT_S = 0.5
LEASE_S = 3.0
MARGIN_S = 0.5
"""How much earlier than all others a gateway takes itself for dead."""
GRACE_S = 1.5
TICK_S = 0.25
FORGET_S = 30.0
PUT_TIMEOUT_MS = 2_000.0
MAX_NAME = 24
_NAME = re.compile("[^A-Za-z0-9_-]")

log = structlog.get_logger()


def name_of(instance: str | None) -> str:
    """Return a name that no other gateway has, nor this one when it is started again."""
    known = _NAME.sub("-", instance or socket.gethostname())[:MAX_NAME]
    return f"{known}-{os.getpid()}-{secrets.token_hex(3)}"


class Membership:
    """The gateways that live, as this one sees them; `observe` what changes, inside `active`."""

    def __init__(self, leases: Bucket, health: Health, *, name: str) -> None:
        self.name = name
        self.live: frozenset[str] = frozenset()
        """Who lives, we included; empty until the bucket was read."""
        self._leases = leases
        self._health = health
        self._observers: list[Callable[[], None]] = []
        self._contents = Contents(leases, lambda entry: parsed(entry.value))
        self._liveness = Liveness(lease_s=LEASE_S, grace_s=GRACE_S)
        self._forgetting: set[asyncio.Task[int | None]] = set()
        self._beaten_at_s = NEVER
        """When our last sign of life that was stored was sent."""
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
        return self._liveness.current_since_s

    def observe(self, look: Callable[[], None]) -> None:
        """Have `look` called after every change, and every TICK_S at the latest."""
        self._observers.append(look)

    def told(self, prefix: str) -> Iterator[tuple[str, int, Any]]:
        """Give what is under a prefix: the rest of each key, its revision, its content (None where it is
        not known, for something foreign stands there)."""
        for key, entry in self._leases.entries.items():
            if not key.startswith(prefix):
                continue
            content = self._contents.of(entry)
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
                await stop_tasks([running])
            if running.done() and not running.cancelled():
                running.result()

    async def _run(self) -> None:
        beating = asyncio.create_task(
            beat_for_ever(self._beat, self._liveness, BEAT_S), name="signs-of-life"
        )
        try:
            while True:
                self._leases.changed.clear()
                self._look()
                await until_changed(self._leases, TICK_S)
        finally:
            await stop_tasks([beating])

    async def _beat(self) -> None:
        if self._leaving:  # nobody must hear of us after that
            return
        sent_s = asyncio.get_running_loop().time()
        if await self.put(MEMBER + self.name, {}) is not None:
            self._beaten_at_s = sent_s
            self._leases.changed.set()

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        current_since_s = self._leases.current_since_s
        self._liveness.look(now_s, current_since_s)
        if current_since_s != NEVER:
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
        live = {name for name, at_s in heard_at_s.items() if self._liveness.is_heard(at_s, now_s)}
        for name in self.live - live - {self.name}:
            log.info("gateway_gone", gateway=name)
        if self._beaten_at_s != NEVER and not self._leaving:
            live.add(self.name)
            self.joined.set()
        self.live = frozenset(live)
        if self.leads:
            self._forget_dead(heard_at_s, now_s)

    def _forget_dead(self, heard_at_s: dict[str, float], now_s: float) -> None:
        old_s = now_s - FORGET_S
        for key, revision in take_out_dead(self._leases, MEMBER, heard_at_s, self.live, old_s):
            task = asyncio.create_task(self.put(key, None, revision=revision))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)


def _encoded(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
