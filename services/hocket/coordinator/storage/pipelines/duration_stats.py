"""How long nodes were measured to take, over all partitions of this process.

This is an aid, not state: a partition decides with the estimates that entered its log
(`core/time/pipeline_forecasts.py`). Estimates are stored in Postgres for later partitions and
processes; the latest measurements may be lost with the process.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from hocket.coordinator.core.time.duration_estimates import (
    HOP,
    DurationForecast,
    Estimate,
    observe,
    outlook,
)
from hocket.coordinator.core.time.hop_times import observe_hop
from hocket.coordinator.storage.pipelines.pipeline_store import PipelineStore
from hocket.kit.postgres.errors import AWAY
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS
from hocket.schemas.pipeline.plan import Plan

KEEP_EVERY_S = 5.0
MAX_OUTLOOKS = 1_000
MAX_PIPELINES = 4_000
"""How many pipelines have their estimates in memory: more than there are plans kept
(`pipeline_catalog.py`)."""
OUTLOOK_FOR_MS = 1_000.0
RUNS_PER_PROBE = 20
"""After this many runs that were given up, one is not."""


log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Measured:
    estimates: dict[str, Estimate] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


class Durations:
    """Learns and stores how long the nodes of pipelines take."""

    def __init__(self, store: PipelineStore) -> None:
        self._store = store
        self._measured: OrderedDict[tuple[str, str], _Measured] = OrderedDict()
        self._given_up: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._outlooks: OrderedDict[tuple[str, str, int], tuple[float, DurationForecast]] = (
            OrderedDict()
        )

    async def run(self) -> None:
        """Store measurements regularly; never returns, cancel to stop."""
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            try:
                await self.keep()
            except AWAY as error:
                log.warning("durations_not_kept", reason=str(error))
            except Exception:  # an aid, not state
                log.exception("durations_not_kept")

    async def load(self, tenant: str, pipeline: str) -> None:
        """Read what is known of a pipeline, once."""
        if (tenant, pipeline) not in self._measured:
            known = await self._store.durations(tenant, pipeline)
            self._measured.setdefault((tenant, pipeline), _Measured(known))
            self._forget()

    def measured(self, tenant: str, pipeline: str, path: str, duration_ms: float) -> None:
        """Record how long a node took. Impossible durations (forged times) are ignored. Differing
        clocks can make a short duration negative: it counts as 0, because no log would accept a
        negative estimate."""
        if not abs(duration_ms) <= MAX_WAIT_MS:
            return
        duration_ms = max(0.0, duration_ms)
        key = (tenant, pipeline)
        measured = self._measured.get(key)
        if measured is None:
            measured = self._measured[key] = _Measured()
            self._forget()
        else:
            self._measured.move_to_end(key)
        observed = observe_hop if path == HOP else observe
        measured.estimates[path] = observed(measured.estimates.get(path), duration_ms)
        measured.changed.add(path)

    def of(self, tenant: str, pipeline: str) -> Mapping[str, Estimate]:
        """Return the estimates of a pipeline's nodes by path."""
        measured = self._measured.get((tenant, pipeline))
        return {} if measured is None else measured.estimates

    def gave_up(self, tenant: str, pipeline: str) -> None:
        """Note that a run, or one of its nodes, was given up because of the estimates, and measured
        nothing."""
        key = (tenant, pipeline)
        self._given_up[key] = self._given_up.get(key, 0) + 1
        self._given_up.move_to_end(key)
        if len(self._given_up) > MAX_PIPELINES:
            self._given_up.popitem(last=False)

    def wants_probe(self, tenant: str, pipeline: str) -> bool:
        """Tell whether the next run must not be given up, so that outdated estimates are measured
        again."""
        key = (tenant, pipeline)
        if self._given_up.get(key, 0) < RUNS_PER_PROBE:
            return False
        del self._given_up[key]
        return True

    def outlook(self, tenant: str, pipeline: str, version: int, plan: Plan) -> DurationForecast:
        """Return what to expect of a plan's nodes, by recent measurements."""
        key = (tenant, pipeline, version)
        made = self._outlooks.get(key)
        if made is None or monotonic_ms() - made[0] > OUTLOOK_FOR_MS:
            made = (monotonic_ms(), outlook(plan, self.of(tenant, pipeline)))
            self._outlooks[key] = made
            self._outlooks.move_to_end(key)
            if len(self._outlooks) > MAX_OUTLOOKS:
                self._outlooks.popitem(last=False)
        return made[1]

    def _forget(self) -> None:
        """If there are too many, forget the pipeline that was measured longest ago; Postgres has
        what was stored of it."""
        if len(self._measured) > MAX_PIPELINES:
            self._measured.popitem(last=False)

    async def keep(self) -> None:
        """Write the estimates that have changed since the last time."""
        rows = [
            (tenant, pipeline, path, measured.estimates[path])
            for (tenant, pipeline), measured in self._measured.items()
            for path in sorted(measured.changed)
        ]
        if not rows:
            return
        await self._store.keep_durations(rows)
        for tenant, pipeline, path, written in rows:
            measured = self._measured.get((tenant, pipeline), _Measured())
            if measured.estimates.get(path) is written:  # otherwise it changed while it was written
                measured.changed.discard(path)
