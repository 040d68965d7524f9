"""The steps of one replica up and down: provision, load, unload, release, and health probes.

A failed step up is repeated after a pause, as long as the level is wanted. All gateways are told
before a step down is made. Time is counted up to each change before it is made.
"""

from collections.abc import Callable
from math import inf

import structlog

from hocket.gateway.core.warming.warm_leases import Level, Want
from hocket.gateway.core.warming.warm_rule import Action, WarmRule
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.warming.accounting import WarmAccounting
from hocket.gateway.warming.drivers import Driver, StartFailed
from hocket.gateway.warming.policy import WarmPolicy
from hocket.gateway.warming.replica_state import ReplicaState
from hocket.gateway.warming.state_exchange import StateExchange

FIRST_PAUSE_MS = 1_000.0
MAX_PAUSE_MS = 60_000.0
PROBE_MS = 5_000.0
"""How often the server of a ready replica is probed."""

log = structlog.get_logger()


class ReplicaLifecycle:
    """Starts and stops the server of one replica, while this gateway is the leader."""

    def __init__(
        self,
        key: str,
        rule: WarmRule,
        driver: Driver,
        state: ReplicaState,
        policy: WarmPolicy,
        accounting: WarmAccounting,
        exchange: StateExchange,
        *,
        now_ms: Callable[[], float],
        metrics: GatewayMetrics,
    ) -> None:
        self._key = key
        self._rule = rule
        self._driver = driver
        self._state = state
        self._policy = policy
        self._accounting = accounting
        self._exchange = exchange
        self._now_ms = now_ms
        self._metrics = metrics
        self._pause_ms = FIRST_PAUSE_MS
        self._not_before_ms = -inf
        self._probe_at_ms = -inf

    async def take_over(self) -> None:
        """Become the leader: continue from the state the former leader published,
        after asking the server."""
        self._exchange.lead()
        now_ms = self._now_ms()
        accounted_ms = self._exchange.accounted_ms
        self._accounting.resume(accounted_ms or now_ms)
        level = await self._level_of_server(now_ms)
        if not accounted_ms:
            self._accounting.resume(self._now_ms())
        if level is Level.READY:  # it is unknown when a gateway last used it
            self._policy.hold("taken over", now_ms, now_ms + self._rule.idle_ms, now_ms)
        log.info("replica_leading", backend=self._key, level=level.name.lower())
        self._state.move(level)

    async def probe(self, now_ms: float) -> None:
        """Check whether the server of a ready replica has lost its model."""
        if self._state.level is not Level.READY or now_ms < self._probe_at_ms:
            return
        self._probe_at_ms = now_ms + PROBE_MS
        if await self._driver.ready() is False and await self._driver.ready() is False:
            log.warning("replica_lost", backend=self._key)
            self._accounting.count(now_ms)
            self._accounting.record()
            self._state.move(Level.COLD)

    async def step(self, want: Want, now_ms: float) -> float | None:
        """Make one step towards the wanted level and return None; if there is nothing to do yet,
        return when there may be."""
        if want.level < self._state.level:
            await self._scale_down()
            return None
        if want.level == self._state.level:
            return inf
        if now_ms < self._not_before_ms:
            return self._not_before_ms
        await self._scale_up(want)
        return None

    async def _level_of_server(self, now_ms: float) -> Level:
        level = self._state.level
        ready = await self._driver.ready()
        if ready is None:
            return level
        self._probe_at_ms = now_ms + PROBE_MS
        if ready:
            return Level.READY
        return Level.COLD if level is Level.READY else level

    async def _scale_up(self, want: Want) -> None:
        state = self._state
        action: Action = "provision" if state.level is Level.COLD else "load"
        began_ms = self._now_ms()
        self._accounting.count(began_ms)
        state.move(state.level, began_ms + state.startup_ms)
        log.info("replica_starts", backend=self._key, action=action, reason=want.reason)
        try:
            await self._driver.do(action, timeout_ms=self._rule.timeout_ms)
        except StartFailed as error:
            self._failed(error)
            return
        now_ms = self._now_ms()
        self._accounting.count(now_ms)
        state.measured(action, now_ms - began_ms)
        self._pause_ms = FIRST_PAUSE_MS
        level = Level(state.level + 1)
        left_ms = state.startup.between(level, Level.READY)
        if level is Level.READY:
            self._probe_at_ms = now_ms + PROBE_MS
            self._policy.hold("just started", now_ms, now_ms + self._rule.min_warm_ms, now_ms)
        log.info(
            "replica_started",
            backend=self._key,
            action=action,
            reason=want.reason,
            took_ms=round(now_ms - began_ms, 1),
        )
        state.move(level, now_ms + left_ms if want.level > level else None)

    def _failed(self, error: StartFailed) -> None:
        now_ms = self._now_ms()
        self._accounting.count(now_ms)
        if self._state.level is Level.COLD:
            self._accounting.record()
        self._metrics.start_failures.labels(self._key).inc()
        log.warning("replica_not_started", backend=self._key, reason=str(error))
        self._not_before_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, MAX_PAUSE_MS)
        self._state.move(self._state.level)

    async def _scale_down(self) -> None:
        """Take one step down, after telling all gateways."""
        self._accounting.count(self._now_ms())
        action: Action = "unload" if self._state.level is Level.READY else "release"
        if action == "release":
            self._accounting.record()
        self._state.move(Level(self._state.level - 1))
        await self._exchange.publish()
        try:
            await self._driver.do(action, timeout_ms=self._rule.timeout_ms)
        except StartFailed as error:
            log.warning("replica_not_stopped", backend=self._key, reason=str(error))
        log.info("replica_stopped", backend=self._key, action=action)
