"""This gateway's part of the limits that it shares with the other gateways.

A shared limit is that of a replica, or of a pool smaller than its replicas together. Each has a
ledger in the gateways' bucket (`limit.<hash of its name>`) with a line for each gateway. Writes are
conditional on no other write in between, so the held places never add up to more than the limit.
`core/routing/shares.py` decides what to write; lines of dead gateways are left out. The scheduler
may use what this gateway's line holds, minus what is about to be released, and nothing while this
gateway's lease does not hold, because others may already have its places. Calls already at a
backend continue.

In-process functions belong to each gateway and are not shared.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.core.config.table import BackendSpec, RoutingTable
from hocket.gateway.core.routing.membership_records import LIMIT
from hocket.gateway.core.routing.replica_choice import pool_cap
from hocket.gateway.core.routing.shares import Line, cap, fair, is_short, next_line
from hocket.kit.process.task_stop import stop_tasks

TURN_MS = 1_000.0
"""How long a gateway's turn lasts when there are too few places for all."""
LOOK_AFTER_S = 0.01
"""How long to wait for further changes before looking at the scheduler's demand."""
RETRY_S = 0.1
SPOILT_S = 0.5
"""How long others get to restore an overwritten entry that this gateway does not know."""
MAX_SHARERS = 48
"""The most gateways that can share one limit; an entry of the bucket holds no more lines."""
MAX_WRITING = 64
SETTLE_S = 3.0
"""How long a starting gateway waits for its places."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Limit:
    name: str
    key: str
    places: int
    spec: BackendSpec | None
    """The replica that the limit belongs to; None for a pool."""
    pool: str
    revision: int = 0
    lines: dict[str, Line] = field(default_factory=dict)
    writing: bool = False
    retry_at_s: float = 0.0
    spoilt: bool = False
    """Whether the entry was overwritten by something foreign,
    so that the lines must be written again."""
    waited: bool = False
    """Whether gateways that know the lines of a spoilt limit have been given time to restore them."""

    def must_wait(self) -> bool:
        """Return, only once, whether to wait until others have restored the lines of a spoilt limit."""
        if not self.spoilt or self.lines or self.waited:
            return False
        self.waited = True
        return True


class SharedLimits:
    """The limits of backends, shared with the other gateways."""

    def __init__(
        self,
        membership: Membership,
        scheduler: CallScheduler,
        table: RoutingTable,
        now_ms: Callable[[], float],
    ) -> None:
        self._membership = membership
        self._scheduler = scheduler
        self._now_ms = now_ms
        self._limits: dict[str, _Limit] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(MAX_WRITING)
        self._look_at: asyncio.TimerHandle | None = None
        self._settled = asyncio.Event()
        self._read_since_s = membership.current_since_s
        self.use(table)
        scheduler.observe_contention(self._request_look)
        membership.observe(self.look)

    def use(self, table: RoutingTable) -> None:
        """Share the limits of another table from now on."""
        before = self._limits
        self._limits = {}
        for name, places, spec, pool in _limits_of(table):
            kept = before.get(name)
            limit = kept if kept is not None else _Limit(name, _key(name), places, spec, pool)
            limit.places, limit.spec, limit.pool = places, spec, pool
            self._limits[name] = limit
        self.look()

    async def settled(self) -> None:
        """Wait until this gateway has its places, at most SETTLE_S; after that, calls wait for them."""
        try:
            async with asyncio.timeout(SETTLE_S):
                await self._settled.wait()
        except TimeoutError:
            log.warning("limits_not_settled", settle_s=SETTLE_S)

    async def close(self) -> None:
        """Stop writing."""
        if self._look_at is not None:
            self._look_at.cancel()
        await stop_tasks(self._writing)

    def look(self) -> None:
        """Read what other gateways wrote, give the scheduler its part,
        and write what the rule requires."""
        self._look_at = None
        self._read()
        caps: dict[str, int] = {}
        contended: set[str] = set()
        turn = int(self._now_ms() // TURN_MS)
        leased = self._membership.is_leased
        for limit in self._limits.values():
            in_use, wish = self._wanted(limit)
            mine = limit.lines.get(self._membership.name, Line(0, 0))
            caps[limit.name] = 0
            if leased:
                caps[limit.name] = cap(
                    self._membership.name, limit.places, limit.lines, wish=wish, turn=turn
                )
                self._consider(limit, in_use, wish, turn)
            if caps[limit.name] < mine.held:
                contended.add(limit.pool if limit.spec is None else limit.spec.key)
        self._scheduler.use_caps(caps, contended)
        if leased and all(self._membership.name in one.lines for one in self._limits.values()):
            self._settled.set()

    def _read(self) -> None:
        if (
            self._read_since_s != self._membership.current_since_s
        ):  # revisions may have started over
            self._read_since_s = self._membership.current_since_s
            for limit in self._limits.values():
                limit.revision, limit.lines = 0, {}
        told = {key: (revision, lines) for key, revision, lines in self._membership.told(LIMIT)}
        for limit in self._limits.values():
            revision, content = told.get(limit.key, (0, {}))
            if revision > limit.revision:
                limit.revision = revision
                if content is not None:
                    limit.lines = _lines(content)
            limit.spoilt = self._membership.is_overwritten(LIMIT + limit.key)
            for name in [name for name in limit.lines if name not in self._membership.live]:
                if name != self._membership.name:
                    del limit.lines[name]

    def _wanted(self, limit: _Limit) -> tuple[int, int]:
        """Return how many places of a limit this gateway uses, and how many it could use."""
        in_use, waiting = self._scheduler.demand(limit.pool, limit.spec)
        return in_use, min(in_use + waiting, limit.places)

    def _consider(self, limit: _Limit, in_use: int, wish: int, turn: int) -> None:
        """Write this gateway's line if places have to move, or others need to know its wish."""
        me, loop = self._membership.name, asyncio.get_running_loop()
        if limit.writing or loop.time() < limit.retry_at_s:
            return
        if limit.must_wait():
            limit.retry_at_s = loop.time() + SPOILT_S
            return
        mine = limit.lines.get(me)
        line = next_line(me, limit.places, limit.lines, wish=wish, in_use=in_use, turn=turn)
        if mine is None:
            if len(limit.lines) >= MAX_SHARERS:
                return
        elif line.held == mine.held and not limit.spoilt:
            wishes = {name: one.wish for name, one in limit.lines.items()} | {me: wish}
            if wish == mine.wish or not is_short(line, fair(limit.places, wishes, turn)[me]):
                return
        limit.writing = True
        task = asyncio.create_task(self._write(limit, {**limit.lines, me: line}))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, limit: _Limit, lines: dict[str, Line]) -> None:
        content = {name: [line.held, line.wish] for name, line in lines.items()}
        try:
            async with self._places:
                revision = await self._membership.put(
                    LIMIT + limit.key, content, revision=limit.revision
                )
        finally:
            limit.writing = False
        if revision is None:
            limit.retry_at_s = asyncio.get_running_loop().time() + RETRY_S
        elif revision > limit.revision:
            limit.revision, limit.lines = revision, lines
        self._request_look()

    def _request_look(self) -> None:
        """Schedule a look: a call waits here, or a place that others wait for was released."""
        if self._look_at is None:
            self._look_at = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self.look)


def _limits_of(table: RoutingTable) -> list[tuple[str, int, BackendSpec | None, str]]:
    """Return the shared limits: name, places, replica (or None), and pool of each."""
    shared = [spec for spec in table.backends() if spec.kind != "function"]
    found: list[tuple[str, int, BackendSpec | None, str]] = [
        (spec.key, spec.limit, spec, spec.pool) for spec in shared
    ]
    together: dict[str, int] = {}
    for spec in shared:
        together[spec.pool] = together.get(spec.pool, 0) + spec.limit
    found += [
        (pool_cap(pool), table.pools[pool].limit, None, pool)
        for pool, places in together.items()
        if table.pools[pool].limit < places
    ]
    return found


def _key(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=12).hexdigest()


def _lines(content: Any) -> dict[str, Line]:
    if not isinstance(content, Mapping):
        return {}
    return {str(name): Line(int(held), int(wish)) for name, (held, wish) in content.items()}
