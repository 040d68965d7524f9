"""Tells the gateways which models accepted runs will need: at once for a single run, and at
intervals for many runs of one pipeline. It is a hint: a lost one costs time and nothing else."""

from collections import OrderedDict
from dataclasses import dataclass

import structlog

from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.core.time.duration_estimates import DurationForecast
from hocket.coordinator.core.time.model_demand import expected_nodes, needs_models
from hocket.coordinator.storage.pipelines.pipeline_catalog import Entry
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.errors import PayloadTooLarge
from hocket.schemas.messages import NodeExpected, PromptExpected, RunsExpected

log = structlog.get_logger(__name__)

EVERY_MS = 250.0
"""The shortest interval between two messages about a pipeline."""
MAX_PIPELINES = 1_000


@dataclass(slots=True)
class _Pipeline:
    outlook: DurationForecast | None = None
    nodes: tuple[NodeExpected, ...] = ()
    told_ms: float = float("-inf")
    runs: int = 0


class DemandPublisher:
    """Tells the gateways which model calls the runs of one partition will make."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._pipelines: OrderedDict[tuple[str, str, int], _Pipeline] = OrderedDict()

    def accepted(self, run: Run, entry: Entry, outlook: DurationForecast) -> None:
        """Announce an accepted run, if it needs models."""
        key = (run.tenant, run.pipeline, entry.version)
        known = self._pipelines.get(key)
        if known is None:
            known = self._pipelines[key] = _Pipeline(runs=0 if needs_models(entry.plan) else -1)
            if len(self._pipelines) > MAX_PIPELINES:
                self._pipelines.popitem(last=False)
        if known.runs < 0:
            return
        known.runs += 1
        if run.accepted_at_ms - known.told_ms < EVERY_MS:
            return
        if known.outlook is not outlook:
            known.outlook, known.nodes = outlook, expected_nodes(entry.plan, outlook)
        told = RunsExpected(
            tenant=run.tenant,
            pipeline=run.pipeline,
            version=entry.version,
            runs=known.runs,
            accepted_at_ms=run.accepted_at_ms,
            nodes=known.nodes,
        )
        self._bus.publish_nowait(subjects.RUNS_EXPECTED, told.model_dump_json().encode())
        known.told_ms, known.runs = run.accepted_at_ms, 0

    def prompt(self, expected: PromptExpected) -> None:
        """Announce how a prompt will begin, unless it is too long for the bus."""
        try:
            self._bus.publish_nowait(subjects.PROMPT_EXPECTED, expected.model_dump_json().encode())
        except PayloadTooLarge:
            log.info("prompt_demand_not_published", run_id=expected.run_id, node=expected.node)
