"""One replica, kept as warm as its leases want.

States: cold, provisioning, provisioned, loading, ready; down again in the same steps. Only the gateway
that leads acts; the others follow what it tells in the gateways' bucket (`warm.<hash>`), and one that
comes to lead goes on from there, after a look at the server. A start that fails is tried again
after a pause, as long as it is wanted. Before a model is unloaded everybody is told that it is cold.
All times are epoch milliseconds.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import structlog

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.routing.membership_records import WARM
from hocket.gateway.core.warming.forecast import Forecast
from hocket.gateway.core.warming.warm_leases import ColdStart, Lease, Level, Startup, Want, wanted
from hocket.gateway.core.warming.warm_rule import Action
from hocket.gateway.core.warming.warm_time import WarmTime, price
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.warming.drivers import Driver, StartFailed
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.schemas.messages import WarmRecord

FIRST_PAUSE_MS = 1_000.0
MAX_PAUSE_MS = 60_000.0
PROBE_MS = 5_000.0
"""How often the server of a ready replica is asked whether it still is."""
TICK_MS = 1_000.0
RECORD_MS = 15_000.0
"""How much time goes into one record of a replica that is warm."""
REMEMBER = 0.3
"""The weight of the newest start among those that were measured."""
REMOTE_IDLE_MS = 3_000.0
"""What other gateways tell of their calls can be this old."""
MAX_LEASES = 256

log = structlog.get_logger()

Book = Callable[[WarmRecord], None]


@dataclass(slots=True)
class _Told:
    """What the leader told last."""

    level: Level = Level.COLD
    ready_at_ms: float | None = None
    accounted_ms: float = 0.0


class ReplicaManager:
    """See the module."""

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
    ) -> None:
        assert spec.warm is not None, spec.key
        self.spec = spec
        self.rule = spec.warm
        self.startup = spec.warm.startup
        self.level = Level.COLD
        self.ready_at_ms: float | None = None
        """When the start under way should be done; None where none is."""
        self._model = model
        self._driver = driver
        self._membership = membership
        self._usage = usage
        self._now_ms = now_ms
        self._book = book
        self._metrics = metrics
        self._changed = changed
        self._key = WARM + hashlib.blake2b(spec.key.encode(), digest_size=12).hexdigest()
        self._leases: dict[str, Lease] = {}
        # a run that waits for its model uses it only when that has started
        quiet_ms = spec.warm.idle_ms + spec.warm.startup.between(Level.COLD, Level.READY)
        self._forecast = Forecast(quiet_ms) if spec.warm.forecast else None
        self._remote_used_ms = -inf
        self._remote_busy_ms = 0.0
        self._told = _Told()
        self._leading = False
        self._wake = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None
        self._pause_ms = FIRST_PAUSE_MS
        self._not_before_ms = -inf
        self._probe_at_ms = -inf
        self._time = WarmTime()
        self._recorded_ms = self._counted_ms = now_ms()
        self._reason = ""
        self._task = asyncio.create_task(self._keep(), name=f"keep {spec.key}")

    @property
    def cold_start(self) -> ColdStart | None:
        """What stands between the replica and a call; None where it is ready."""
        if self.level is Level.READY:
            return None
        left_ms = self.startup.between(self.level, Level.READY)
        return ColdStart(left_ms, self.ready_at_ms)

    @property
    def active(self) -> bool:
        """Whether it is ready, or on its way."""
        return self.level is Level.READY or self.ready_at_ms is not None

    def start_by_ms(self, at_ms: float) -> float:
        """Return when it must be started to be ready at a time."""
        return at_ms - self.startup.between(self.level, Level.READY)

    def there_ms(self, at_ms: float) -> float:
        """Return when it can be ready that is to be ready at a time."""
        return max(at_ms, self._now_ms() + self.startup.between(self.level, Level.READY))

    def need(self, reason: str, at_ms: float, until_ms: float = 0.0) -> None:
        """Be ready at a time, and for as long afterwards as an idle model is kept: after it can be
        there, and after `until_ms`."""
        until_ms = max(self.there_ms(at_ms), until_ms) + self.rule.idle_ms
        self._lease(Lease(reason, Level.READY, at_ms, until_ms), self._now_ms())
        self.record_arrival(at_ms)

    def record_arrival(self, at_ms: float) -> None:
        """Learn that somebody needs the replica at a time."""
        if self._forecast is not None:
            self._forecast.record_arrival(at_ms)

    def used_elsewhere(self, busy_ms: float, in_use: bool) -> None:
        """Take in what another gateway tells of its calls."""
        self._remote_busy_ms += busy_ms
        if busy_ms or in_use:
            self._remote_used_ms = self._now_ms()
            self.record_arrival(self._remote_used_ms)

    def look(self) -> None:
        """Think again: something changed."""
        if self._leading and self._membership.is_overwritten(self._key):
            self._told = _Told()
            self._tell_soon()
        self._wake.set()

    async def close(self) -> None:
        """Stop keeping; the replica stays as it is."""
        tasks = {self._task} if self._telling is None else {self._task, self._telling}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if self._leading:
            self._count(self._now_ms())
            self._record()
        await self._driver.close()

    # ---- what is wanted ----------------------------------------------------------------------

    def _lease(self, lease: Lease, now_ms: float) -> None:
        known = self._leases.get(lease.reason)
        if known is not None and known.until_ms > now_ms:
            lease = Lease(
                lease.reason,
                lease.level,
                min(known.from_ms, lease.from_ms),
                max(known.until_ms, lease.until_ms),
            )
        self._leases[lease.reason] = lease
        if len(self._leases) > MAX_LEASES:
            del self._leases[min(self._leases.values(), key=lambda one: one.until_ms).reason]
        self._wake.set()

    def _all_leases(self, now_ms: float) -> Iterator[Lease]:
        for reason in [r for r, lease in self._leases.items() if lease.until_ms <= now_ms]:
            del self._leases[reason]
        yield from self._leases.values()
        yield Lease("tier", self.rule.tier, -inf, inf)
        for schedule in self.rule.schedules:
            yield from schedule.leases(now_ms)
        window = self._forecast.window() if self._forecast is not None else None
        if window is not None:
            yield Lease("forecast", Level.READY, window.from_ms, window.until_ms)
        used_ms = max(self._usage.last_used_ms(self.spec.key), self._remote_used_ms)
        if used_ms > -inf:
            idle_ms = self.rule.idle_ms
            if len(self._membership.live) > 1:
                idle_ms = max(idle_ms, REMOTE_IDLE_MS)
            yield Lease("calls", Level.READY, -inf, used_ms + idle_ms)

    def _want(self, now_ms: float) -> Want:
        return wanted(self._all_leases(now_ms), self.level, self.startup, now_ms)

    # ---- keeping -----------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            try:
                await self._step()
            except Exception:  # one replica's trouble is not the others'
                log.exception("replica_manager_failed", backend=self.spec.key)
                await self._rest(MAX_PAUSE_MS)

    async def _step(self) -> None:
        """Do what is wanted now, or wait until that may have changed."""
        self._wake.clear()
        if not self._membership.leads:
            self._follow()
            await self._rest(TICK_MS)
            return
        if not self._leading:
            await self._take_up()
        now_ms = self._now_ms()
        await self._probe(now_ms)
        want = self._want(now_ms)
        self._reason = want.reason or self._reason
        if want.level > self.level and now_ms >= self._not_before_ms:
            await self._scale_up(want)
        elif want.level < self.level:
            await self._scale_down()
        else:
            self._count(now_ms)
            if now_ms - self._recorded_ms >= RECORD_MS:
                self._record()
            self._tell_soon()
            again_ms = min(want.changes_at_ms, now_ms + TICK_MS)
            if want.level > self.level:
                again_ms = min(again_ms, self._not_before_ms)
            await self._rest(again_ms - now_ms)

    async def _rest(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(max(wait_ms, 1.0) / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _take_up(self) -> None:
        """Begin to lead: go on from what the former leader told, after a look at the server."""
        self._follow()
        self._leading = True
        now_ms = self._now_ms()
        self._recorded_ms = self._counted_ms = self._told.accounted_ms or now_ms
        self.ready_at_ms = None
        ready = await self._driver.ready()
        if ready is not None:
            self._probe_at_ms = now_ms + PROBE_MS
            if ready:
                self.level = Level.READY
            elif self.level is Level.READY:
                self.level = Level.COLD
        if not self._told.accounted_ms:
            self._recorded_ms = self._counted_ms = self._now_ms()
        if self.level is Level.READY:  # who used it last is not known
            idle_ms = self.rule.idle_ms
            self._lease(Lease("taken over", Level.READY, now_ms, now_ms + idle_ms), now_ms)
        log.info("replica_leading", backend=self.spec.key, level=self.level.name.lower())
        self._seen()

    async def _probe(self, now_ms: float) -> None:
        """Notice that the server of a ready replica has lost its model."""
        if self.level is not Level.READY or now_ms < self._probe_at_ms:
            return
        self._probe_at_ms = now_ms + PROBE_MS
        if await self._driver.ready() is False and await self._driver.ready() is False:
            log.warning("replica_lost", backend=self.spec.key)
            self._count(now_ms)
            self._record()
            self.level = Level.COLD
            self._seen()

    async def _scale_up(self, want: Want) -> None:
        """Take one step up; a failure is tried again after a pause."""
        action: Action = "provision" if self.level is Level.COLD else "load"
        began_ms = self._now_ms()
        self._count(began_ms)
        self.ready_at_ms = began_ms + self.startup.between(self.level, Level.READY)
        self._seen()
        log.info("replica_starts", backend=self.spec.key, action=action, reason=want.reason)
        try:
            await self._driver.do(action, timeout_ms=self.rule.timeout_ms)
        except StartFailed as error:
            self._fail(error)
            return
        now_ms = self._now_ms()
        self._count(now_ms)
        self._measured(action, now_ms - began_ms)
        self._pause_ms = FIRST_PAUSE_MS
        self.level = Level(self.level + 1)
        left_ms = self.startup.between(self.level, Level.READY)
        self.ready_at_ms = now_ms + left_ms if want.level > self.level else None
        if self.level is Level.READY:
            self._probe_at_ms = now_ms + PROBE_MS
            hold = Lease("just started", Level.READY, now_ms, now_ms + self.rule.min_warm_ms)
            self._lease(hold, now_ms)
        log.info(
            "replica_started",
            backend=self.spec.key,
            action=action,
            reason=want.reason,
            took_ms=round(now_ms - began_ms, 1),
        )
        self._seen()

    def _fail(self, error: StartFailed) -> None:
        now_ms = self._now_ms()
        self._count(now_ms)
        if self.level is Level.COLD:
            self._record()
        self._metrics.start_failures.labels(self.spec.key).inc()
        log.warning("replica_not_started", backend=self.spec.key, reason=str(error))
        self._not_before_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, MAX_PAUSE_MS)
        self.ready_at_ms = None
        self._seen()

    async def _scale_down(self) -> None:
        """Take one step down; everybody knows before it is done."""
        self._count(self._now_ms())
        action: Action = "unload" if self.level is Level.READY else "release"
        if action == "release":
            self._record()
        self.level = Level(self.level - 1)
        self.ready_at_ms = None
        self._seen()
        await self._tell()
        try:
            await self._driver.do(action, timeout_ms=self.rule.timeout_ms)
        except StartFailed as error:
            log.warning("replica_not_stopped", backend=self.spec.key, reason=str(error))
        log.info("replica_stopped", backend=self.spec.key, action=action)

    def _measured(self, action: str, took_ms: float) -> None:
        s = self.startup
        if action == "provision":
            self.startup = Startup(_mean(s.provision_ms, took_ms), s.load_ms)
        else:
            self.startup = Startup(s.provision_ms, _mean(s.load_ms, took_ms))

    # ---- telling and following ---------------------------------------------------------------

    def _tell_soon(self) -> None:
        """Tell the others in a while, where it is news; what is told is the state of that moment."""
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        """Tell the others until they know."""
        while self._leading:
            accounted_ms = self._recorded_ms if self._held else 0.0
            told = _Told(self.level, self.ready_at_ms, accounted_ms)
            if told == self._told and not self._membership.is_overwritten(self._key):
                return
            content = {
                "level": int(told.level),
                "ready_at_ms": told.ready_at_ms,
                "provision_ms": self.startup.provision_ms,
                "load_ms": self.startup.load_ms,
                "accounted_ms": told.accounted_ms,
            }
            if await self._membership.put(self._key, content) is None:
                return
            self._told = told

    def _follow(self) -> None:
        """Be as the leader says."""
        self._leading = False
        for _, _, content in self._membership.told(self._key):
            if isinstance(content, dict):
                self._take_in(content)

    def _take_in(self, content: dict[str, Any]) -> None:
        before = (self.level, self.ready_at_ms)
        self.level = Level(int(content["level"]))
        self.ready_at_ms = content["ready_at_ms"]
        self.startup = Startup(float(content["provision_ms"]), float(content["load_ms"]))
        self._told = _Told(self.level, self.ready_at_ms, float(content["accounted_ms"]))
        if (self.level, self.ready_at_ms) != before:
            self._seen()

    def _seen(self) -> None:
        if self._leading:
            self._tell_soon()
        self._metrics.warm_level.labels(self.spec.key).set(int(self.level))
        self._changed()

    # ---- time and money ----------------------------------------------------------------------

    @property
    def _held(self) -> bool:
        return self.level is not Level.COLD or self.ready_at_ms is not None

    def _count(self, now_ms: float) -> None:
        """Put the time since the last look where it belongs."""
        passed_ms = max(now_ms - self._counted_ms, 0.0)
        self._counted_ms = max(now_ms, self._counted_ms)
        busy_ms = self._usage.take(self.spec.key, now_ms) + self._remote_busy_ms
        self._remote_busy_ms = 0.0
        if busy_ms:
            self.record_arrival(self._counted_ms)
        if not self._held:
            self._recorded_ms = self._counted_ms
            return
        starting = self.ready_at_ms is not None
        self._time = self._time.passed(self.level, starting=starting, ms=passed_ms, busy_ms=busy_ms)

    def _record(self) -> None:
        """Book the time that was counted."""
        time, self._time = self._time, WarmTime()
        from_ms, self._recorded_ms = self._recorded_ms, self._counted_ms
        if time.held_ms <= 0:
            return
        usd = self.rule.usd_per_hour
        record = WarmRecord(
            call_id=f"warm:{self.spec.key}:{from_ms:.0f}",
            backend=self.spec.name,
            replica=self.spec.replica,
            model=self._model,
            reason=self._reason,
            from_at_ms=from_ms,
            to_at_ms=max(self._counted_ms, from_ms),
            starting_ms=time.starting_ms,
            busy_ms=time.busy_ms,
            idle_ms=time.idle_ms,
            provisioned_ms=time.provisioned_ms,
            usd_per_hour=usd,
            cost_usd=price(time.held_ms, usd),
            wasted_usd=price(time.wasted_ms, usd),
        )
        self._metrics.held(self.spec.key, record)
        self._book(record)


def _mean(before_ms: float, took_ms: float) -> float:
    return took_ms if before_ms <= 0 else before_ms + REMEMBER * (took_ms - before_ms)
