"""Which gateways are alive, and what they tell each other, through one bucket that all of them
write and watch.

Each gateway writes a heartbeat (`member.<name>`) every BEAT_S; one not heard of for LEASE_S counts
as dead. A name belongs to one process; after a restart a gateway has a new one. States: behind (the
watch of the bucket lags, and nothing is decided), current. A gateway's own lease holds while its
last stored heartbeat is so recent that no other gateway can have missed it; without the lease it
must not start anything that a dead gateway must not do. When the watch has been restarted, or this
process was suspended, other gateways get GRACE_S to be heard.
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
"""How much earlier than the others a gateway considers itself dead."""
GRACE_S = 1.5
TICK_S = 0.25
FORGET_S = 30.0
PUT_TIMEOUT_MS = 2_000.0
MAX_NAME = 24
_NAME = re.compile("[^A-Za-z0-9_-]")

log = structlog.get_logger()


def name_of(instance: str | None) -> str:
    """Return a name unique to this process: no other gateway has it,
    nor will this one after a restart."""
    known = _NAME.sub("-", instance or socket.gethostname())[:MAX_NAME]
    return f"{known}-{os.getpid()}-{secrets.token_hex(3)}"


class Membership:
    """The live gateways as this one sees them.

    `observe` registers for changes, inside `active`.
    """

    def __init__(self, leases: Bucket, health: Health, *, name: str) -> None:
        self.name = name
        self.live: frozenset[str] = frozenset()
        """The live gateways, including this one; empty until the bucket has been read."""
        self._leases = leases
        self._health = health
        self._observers: list[Callable[[], None]] = []
        self._contents = Contents(leases, lambda entry: parsed(entry.value))
        self._liveness = Liveness(lease_s=LEASE_S, grace_s=GRACE_S)
        self._forgetting: set[asyncio.Task[int | None]] = set()
        self._beaten_at_s = NEVER
        """When the last heartbeat that was stored had been sent."""
        self._leaving = False
        self.joined = asyncio.Event()
        """Set once this gateway's heartbeat is stored and the bucket has been read."""

    @property
    def leads(self) -> bool:
        """Whether this gateway does what only one of them should do."""
        return self.is_leased and min(self.live, default="") == self.name

    @property
    def is_leased(self) -> bool:
        """Whether no other gateway can consider this one dead now."""
        now_s = asyncio.get_running_loop().time()
        return now_s - self._beaten_at_s < LEASE_S - MARGIN_S and not self._leaving

    @property
    def current_since_s(self) -> float:
        """Since when everything others write has been received;
        anything known from before may be gone."""
        return self._liveness.current_since_s

    def observe(self, look: Callable[[], None]) -> None:
        """Have `look` called after every change, and at least every TICK_S."""
        self._observers.append(look)

    def told(self, prefix: str) -> Iterator[tuple[str, int, Any]]:
        """Yield the entries under a prefix: the rest of each key, its revision, and its content.

        The content is None if unknown because something foreign was written there.
        """
        for key, entry in self._leases.entries.items():
            if not key.startswith(prefix):
                continue
            content = self._contents.of(entry)
            if content is not None or entry.overwritten:
                yield key.removeprefix(prefix), entry.revision, content

    def is_overwritten(self, key: str) -> bool:
        """Tell whether something foreign was written under a key,
        so that its owner should write it again."""
        entry = self._leases.entries.get(key)
        return entry is not None and entry.overwritten

    async def put(self, key: str, content: Any, *, revision: int | None = None) -> int | None:
        """Write a key (None deletes it) and return its revision; None if another write came first,
        or NATS is unreachable."""
        value = None if content is None else _encoded(content)
        try:
            return await self._leases.put(key, value, revision=revision, timeout_ms=PUT_TIMEOUT_MS)
        except (RevisionPassed, BusUnavailable) as error:
            log.debug("membership_write_failed", key=key, reason=str(error))
            return None

    @asynccontextmanager
    async def active(self, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Be a member inside the block, and leave after it.

        If that fails, `stopping` is set, and leaving the block raises the cause.
        """
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
        if self._leaving:  # no heartbeat after leaving
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
