"""How long nodes were measured to take, over all partitions of this process.

An aid, not state: what a partition decides with are the estimates that entered its log
(`core/time/pipeline_forecasts.py`). Estimates are kept in Postgres for partitions and processes to come;
what was measured since the last time may be lost with the process.
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
"""Pipelines whose estimates are in memory: above the plans that are kept (`catalog.py`)."""
OUTLOOK_FOR_MS = 1_000.0
RUNS_PER_PROBE = 20
"""Of so many runs that would be given up one is not."""


log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Measured:
    estimates: dict[str, Estimate] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


class Durations:
    """How long the nodes of pipelines take, learned and kept."""

    def __init__(self, store: PipelineStore) -> None:
        self._store = store
        self._measured: OrderedDict[tuple[str, str], _Measured] = OrderedDict()
        self._given_up: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._outlooks: OrderedDict[tuple[str, str, int], tuple[float, DurationForecast]] = (
            OrderedDict()
        )

    async def run(self) -> None:
        """Keep what was measured, for ever; cancel to stop."""
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
        """Take in how long a node took; what no node can take (forged times) says nothing. Clocks that
        differ make a short time negative: no log believes such an estimate, it is none at all."""
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
        """Note that a run, or a node of one, was given up by the estimates: it measured nothing."""
        key = (tenant, pipeline)
        self._given_up[key] = self._given_up.get(key, 0) + 1
        self._given_up.move_to_end(key)
        if len(self._given_up) > MAX_PIPELINES:
            self._given_up.popitem(last=False)

    def wants_probe(self, tenant: str, pipeline: str) -> bool:
        """Tell whether the next run shall not be given up, so that estimates which are no longer true
        are measured again."""
        key = (tenant, pipeline)
        if self._given_up.get(key, 0) < RUNS_PER_PROBE:
            return False
        del self._given_up[key]
        return True

    def outlook(self, tenant: str, pipeline: str, version: int, plan: Plan) -> DurationForecast:
        """Return what to expect of a plan's nodes by what was measured until lately."""
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
        """Forget the pipeline that was measured longest ago, where there are too many; Postgres has what
        was kept of it."""
        if len(self._measured) > MAX_PIPELINES:
            self._measured.popitem(last=False)

    async def keep(self) -> None:
        """Write the estimates that changed since the last time."""
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
            if measured.estimates.get(path) is written:  # else it changed while it was written
                measured.changed.discard(path)
