"""The steps of one replica up and down: provision, load, unload, release, and health probes.

A failed step up is repeated after a pause, as long as the level is wanted. All gateways are told
before a step down is made. A failed step down is repeated, too, and so is undone what a failed step
up may have left running once it is not wanted any more. Time is counted up to each change before it
is made, and until a machine has been stopped.
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
from hocket.gateway.warming.replica_state import STARTS, ReplicaState
from hocket.gateway.warming.state_exchange import Handed, StateExchange

FIRST_PAUSE_MS = 1_000.0
MAX_PAUSE_MS = 60_000.0
PROBE_MS = 5_000.0
"""How often the server of a ready replica is probed."""

log = structlog.get_logger()


class _Retry:
    """When a failed step may be tried again: after pauses that become longer."""

    def __init__(self) -> None:
        self.at_ms = -inf
        self._pause_ms = FIRST_PAUSE_MS

    def failed(self, now_ms: float) -> None:
        self.at_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, MAX_PAUSE_MS)

    def succeeded(self) -> None:
        self.at_ms = -inf
        self._pause_ms = FIRST_PAUSE_MS


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
        self._starting, self._stopping = _Retry(), _Retry()
        self._probe_at_ms = -inf

    async def take_over(self, handed: Handed | None = None) -> None:
        """Become the leader: continue from the state the former leader published or handed over,
        after asking the server."""
        accounted_ms = self._exchange.lead(handed)
        now_ms = self._now_ms()
        self._accounting.resume(accounted_ms or now_ms)
        level = await self._level_of_server(now_ms)
        if not accounted_ms:
            self._accounting.resume(self._now_ms())
        if level is Level.READY:  # it is unknown when a gateway last used it
            self._policy.hold("taken over", now_ms, now_ms + self._rule.idle_ms, now_ms)
            self._state.unfinished = None
        elif self._state.unfinished in STARTS:  # nor for whom it was being started
            self._stopping.at_ms = now_ms + self._rule.idle_ms
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
            self._move(Level.COLD)

    async def step(self, want: Want, now_ms: float) -> float | None:
        """Make one step towards the wanted level and return None; if there is nothing to do yet,
        return when there may be."""
        if want.level < self._state.level:
            await self._scale_down()
        elif want.level > self._state.level:
            if now_ms < self._starting.at_ms:
                return self._starting.at_ms
            await self._scale_up(want)
        else:
            if self._state.unfinished is None:
                return inf
            if now_ms < self._stopping.at_ms:
                return self._stopping.at_ms
            await self._stop()
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
        state.unfinished = state.unfinished or action
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
        self._starting.succeeded()
        if action == "load" or state.unfinished != "unload":  # a machine may still hold the model
            state.unfinished = None
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
        self._metrics.start_failures.labels(self._key).inc()
        log.warning("replica_not_started", backend=self._key, reason=str(error))
        self._starting.failed(now_ms)
        self._move(self._state.level)

    async def _scale_down(self) -> None:
        """Take one step down, after telling all gateways."""
        state = self._state
        self._accounting.count(self._now_ms())
        if state.level is Level.READY:
            state.unfinished = "unload"
        elif self._rule.driver.releases:
            state.unfinished = "release"
        self._move(Level(state.level - 1))
        await self._exchange.publish()
        if state.unfinished is not None:
            await self._stop()

    async def _stop(self) -> None:
        """Stop what the server may hold above its level: the model or, with it, the machine."""
        state = self._state
        is_machine = state.level is Level.COLD and self._rule.driver.releases
        action: Action = "release" if is_machine else "unload"
        try:
            await self._driver.do(action, timeout_ms=self._rule.timeout_ms)
        except StartFailed as error:
            self._stopping.failed(self._now_ms())
            log.warning("replica_not_stopped", backend=self._key, action=action, reason=str(error))
            return
        self._stopping.succeeded()
        self._accounting.count(self._now_ms())
        state.unfinished = None
        self._move(state.level)
        log.info("replica_stopped", backend=self._key, action=action)

    def _move(self, level: Level) -> None:
        """Change to a level at which nothing starts; record what the replica took if it is not held
        any more."""
        self._state.move(level)
        if not self._state.is_held:
            self._accounting.record()
