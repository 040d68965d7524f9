"""Keeps one replica at the level that its leases require.

Only the leading gateway acts (`lifecycle.py`); the others follow the state it publishes
(`state_exchange.py`), and a new leader continues from there. So does the manager that a reload puts in
the place of another, once that one has recorded its time. `policy.py` decides the level, and
`accounting.py` counts the cost. All times are epoch milliseconds.
"""

import asyncio
from collections.abc import Callable

import structlog

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.warming.warm_leases import ColdStart, Level
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.warming.accounting import Book, WarmAccounting
from hocket.gateway.warming.drivers import Driver
from hocket.gateway.warming.lifecycle import MAX_PAUSE_MS, ReplicaLifecycle
from hocket.gateway.warming.policy import WarmPolicy
from hocket.gateway.warming.replica_state import ReplicaState
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.gateway.warming.state_exchange import Handed, Predecessor, StateExchange
from hocket.kit.process.task_stop import stop_tasks

TICK_MS = 1_000.0

log = structlog.get_logger()


class ReplicaManager:
    """Manages one replica from its construction to `close`."""

    def __init__(
        self,
        spec: BackendSpec,
        model: str,
        driver: Driver,
        *,
        membership: Membership,
        usage: ReplicaUsage,
        now_ms: Callable[[], float],
        book: Book,
        metrics: GatewayMetrics,
        changed: Callable[[], None],
        before: "asyncio.Task[Handed | None] | None" = None,
    ) -> None:
        """`before` closes the manager that a reload replaced."""
        assert spec.warm is not None, spec.key
        self.spec = spec
        self._driver = driver
        self._membership = membership
        self._now_ms = now_ms
        self._changed = changed
        self._before = Predecessor(before)
        self._wake = asyncio.Event()
        self._state = ReplicaState(spec.key, spec.warm.startup, metrics, self._on_state)
        self._policy = WarmPolicy(
            spec.warm,
            self._state,
            last_used_ms=lambda: usage.last_used_ms(spec.key),
            shared=lambda: len(membership.live) > 1,
            changed=self._wake.set,
        )
        self._accounting = WarmAccounting(
            spec,
            spec.warm,
            model,
            self._state,
            usage,
            now_ms=now_ms(),
            book=book,
            busy=self._policy.record_arrival,
            metrics=metrics,
        )
        self._exchange = StateExchange(spec.key, membership, self._state, self._accounting)
        self._lifecycle = ReplicaLifecycle(
            spec.key,
            spec.warm,
            driver,
            self._state,
            self._policy,
            self._accounting,
            self._exchange,
            now_ms=now_ms,
            metrics=metrics,
        )
        self._task = asyncio.create_task(self._run(), name=f"manage {spec.key}")

    @property
    def cold_start(self) -> ColdStart | None:
        """The start needed before the replica can take calls; None if it is ready."""
        return self._state.cold_start

    @property
    def level(self) -> Level:
        """The replica's current level."""
        return self._state.level

    @property
    def active(self) -> bool:
        """Whether it is ready or starting."""
        return self._state.is_active

    def start_by_ms(self, at_ms: float) -> float:
        """Return when it must be started to be ready at `at_ms`."""
        return at_ms - self._state.startup_ms

    def earliest_ms(self, at_ms: float) -> float:
        """Return when it can be ready: `at_ms`, or later if starting takes longer."""
        return max(at_ms, self._now_ms() + self._state.startup_ms)

    def need(self, reason: str, at_ms: float, until_ms: float = 0.0) -> None:
        """Have the replica ready at `at_ms`, and keep it.

        It is kept for the idle retention time after `until_ms`, or after it can be ready if that is
        later.
        """
        until_ms = max(self.earliest_ms(at_ms), until_ms)
        self._policy.need(reason, at_ms, until_ms, self._now_ms())

    def keep(self, until_ms: float) -> None:
        """Keep the replica ready until `until_ms`, because an operator ordered it."""
        self._policy.keep(until_ms)

    def used_elsewhere(self, busy_ms: float, in_use: bool) -> None:
        """Add another gateway's report of its calls."""
        self._accounting.add_remote_busy(busy_ms)
        if busy_ms or in_use:
            self._policy.used_remotely(self._now_ms())

    def look(self) -> None:
        """Re-evaluate because something changed."""
        self._exchange.look()
        self._wake.set()

    async def close(self) -> Handed | None:
        """Stop managing; the replica stays as it is. Return its state for the manager that follows; None
        if this gateway does not lead."""
        await stop_tasks([self._task])
        await self._before.closed()
        handed = self._before.handed()
        if self._exchange.leading and self._membership.leads:
            self._accounting.count(self._now_ms())
            self._accounting.record()
            handed = self._exchange.state()
        await self._exchange.close()
        await self._driver.close()
        return handed

    def _on_state(self) -> None:
        self._exchange.publish_soon()
        self._changed()

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except Exception:  # one failing replica must not affect the others
                log.exception("replica_manager_failed", backend=self.spec.key)
                await self._rest(MAX_PAUSE_MS)

    async def _step(self) -> None:
        """Take the next step towards the wanted level, or wait until that may have changed."""
        self._wake.clear()
        if self._before.is_closing:
            self._exchange.follow()
            await self._before.closed()
        if not self._membership.leads:
            self._exchange.follow()
            await self._rest(TICK_MS)
            return
        if not self._exchange.leading:
            await self._lifecycle.take_over(self._before.handed())
        now_ms = self._now_ms()
        await self._lifecycle.probe(now_ms)
        want = self._policy.wanted(now_ms)
        self._accounting.because(want.reason)
        again_ms = await self._lifecycle.step(want, now_ms)
        if again_ms is None:
            return
        self._accounting.count(now_ms)
        self._accounting.record_if_due(now_ms)
        self._exchange.publish_soon()
        await self._rest(min(want.changes_at_ms, now_ms + TICK_MS, again_ms) - now_ms)

    async def _rest(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(max(wait_ms, 1.0) / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
