"""What one partition expects of its pipelines' nodes.

Measured durations enter a partition only through its log (`OutlookChanged`): the log alone explains
every decision, and whoever reads it again decides the same, bit for bit. `news` returns what is
worth an event, `change` applies one, `of` returns the forecast that decisions are made with.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.time.duration_estimates import ENOUGH, Estimate, outlook
from hocket.schemas.messages import NodeDuration, OutlookChanged

MAX_NODES_PER_EVENT = 500
"""Keeps an event far below the largest message that the bus carries; the rest follows in the next
one."""
MAX_MADE = 1_000
"""How many forecasts are kept ready; others are computed again when they are asked for."""
MATERIAL_SHARE = 0.1
"""A mean or a tail that moved by less than this share of itself ..."""
MATERIAL_MS = 1.0
"""... or by less than this is not worth an event."""

Pipeline = tuple[str, str]
"""Tenant and name."""


@dataclass(frozen=True, slots=True)
class KeptEstimate:
    """One estimate as stored in Postgres."""

    tenant: str
    pipeline: str
    path: str
    estimate: Estimate


class PipelineForecasts:
    """What a partition expects of its pipelines. `kept` is what a former owner of the partition
    left in Postgres."""

    def __init__(self, kept: Iterable[KeptEstimate] = ()) -> None:
        self._durations: dict[Pipeline, dict[str, Estimate]] = {}
        self._made: OrderedDict[tuple[str, str, int], PlanForecast] = OrderedDict()
        for row in kept:
            self._durations.setdefault((row.tenant, row.pipeline), {})[row.path] = row.estimate

    def of(self, tenant: str, pipeline: str, version: int, plan: PipelinePlan) -> PlanForecast:
        """Return what to expect of every node of a pipeline's version."""
        key = (tenant, pipeline, version)
        made = self._made.get(key)
        if made is None:
            known = self._durations.get((tenant, pipeline), {})
            made = self._made[key] = PlanForecast(plan, outlook(plan.source, known))
            if len(self._made) > MAX_MADE:
                self._made.popitem(last=False)
        return made

    def change(self, event: OutlookChanged) -> list[KeptEstimate]:
        """Apply an event of the log; return what must be kept with its commit."""
        durations = self._durations.setdefault((event.tenant, event.pipeline), {})
        rows = []
        for node in event.nodes:
            estimate = Estimate(node.mean_ms, node.variance, node.weight)
            durations[node.path] = estimate
            rows.append(KeptEstimate(event.tenant, event.pipeline, node.path, estimate))
        for key in [k for k in self._made if k[:2] == (event.tenant, event.pipeline)]:
            del self._made[key]
        return rows

    def news(
        self, tenant: str, pipeline: str, measured: Mapping[str, Estimate]
    ) -> OutlookChanged | None:
        """Return the event that tells this partition what has been measured; None if it would
        change nothing material."""
        known = self._durations.get((tenant, pipeline), {})
        nodes = [
            NodeDuration(
                path=path,
                mean_ms=estimate.mean_ms,
                variance=estimate.variance,
                weight=estimate.weight,
            )
            for path, estimate in sorted(measured.items())
            if _is_material(known.get(path), estimate)
        ]
        if not nodes:
            return None
        return OutlookChanged(
            tenant=tenant, pipeline=pipeline, nodes=tuple(nodes[:MAX_NODES_PER_EVENT])
        )


def _is_material(known: Estimate | None, measured: Estimate) -> bool:
    if known is None or (known.weight < ENOUGH) != (measured.weight < ENOUGH):
        return True
    return _moved(known.mean_ms, measured.mean_ms) or _moved(known.tail_ms(), measured.tail_ms())


def _moved(before_ms: float, after_ms: float) -> bool:
    return abs(after_ms - before_ms) > max(MATERIAL_MS, MATERIAL_SHARE * before_ms)
