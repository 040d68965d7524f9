"""How long nodes take: the forecasts that decisions are made with, and what ended steps add to them."""

from hocket.coordinator.core.run.plan.nodes import LEAF, SUBRUN, PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.run import ITEM, ROUND, SUCCEEDED, Run, Step
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.duration_estimates import HOP, UNIT
from hocket.coordinator.core.time.hop_times import hop_ms
from hocket.coordinator.core.time.pipeline_forecasts import KeptEstimate, PipelineForecasts
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.schemas.messages import (
    AttemptFinished,
    OutlookChanged,
    RunEvent,
    encoded,
)


class Measurements:
    """The measurements of one partition. What this process measures (`durations`) counts here only
    once it has come back through the partition's log."""

    def __init__(self, number: int, *, durations: Durations, posts: LogPosts) -> None:
        self._number = number
        self._durations = durations
        self._posts = posts
        self._forecasts = PipelineForecasts()
        self._in_use: set[tuple[str, str]] = set()

    def load(self, kept: list[KeptEstimate]) -> None:
        """Start with what the partition's former owner left in Postgres."""
        self._forecasts = PipelineForecasts(kept)

    def forecast(
        self, tenant: str, pipeline: str, version: int, plan: PipelinePlan
    ) -> PlanForecast:
        """Return the forecast for decisions about runs of a pipeline's version."""
        self._in_use.add((tenant, pipeline))
        return self._forecasts.of(tenant, pipeline, version, plan)

    def forecast_for(self, run: Run) -> PlanForecast | None:
        """Return the forecast for decisions about a run; None for a run that never began."""
        if run.plan is None:
            return None
        return self.forecast(run.tenant, run.pipeline, run.version, run.plan)

    def change(self, event: OutlookChanged) -> list[KeptEstimate]:
        """Apply an event of the log; return what must be stored with its commit."""
        return self._forecasts.change(event)

    def post_news(self) -> None:
        """Post what was measured of the pipelines used since the last call, if it is news."""
        in_use, self._in_use = self._in_use, set()
        for tenant, pipeline in sorted(in_use):
            measured = self._durations.of(tenant, pipeline)
            event = self._forecasts.news(tenant, pipeline, measured)
            if event is not None:
                self._posts.post(self._number, event.kind, encoded(event))

    def measure(self, outcome: Outcome, event: RunEvent) -> None:
        """Record how long the steps took that an event ended, and a step's way to a worker and back
        if decisions are made with it."""
        run = outcome.run
        for step in outcome.changed:
            path = _measured_path(run, step) if step.state == SUCCEEDED else None
            if path is not None:
                self._durations.measured(run.tenant, run.pipeline, path, _duration_ms(step, event))
        if run.plan is not None and run.plan.degrades and isinstance(event, AttemptFinished):
            self._measure_hop(run, event)

    def _measure_hop(self, run: Run, event: AttemptFinished) -> None:
        """Record how long an attempt's way to a worker and back took."""
        step = run.steps.get(event.step)
        if step is not None and step.state == SUCCEEDED and step.attempt == event.attempt:
            hop = hop_ms(run, step, event)
            if hop is not None:
                self._durations.measured(run.tenant, run.pipeline, HOP, hop)


def _measured_path(run: Run, step: Step) -> str | None:
    """Return the path of the node that a step measures that succeeded; None if it measures none."""
    if step.source is not None or step.home is not None:
        return None
    if run.origin is not None and step.role not in (LEAF, SUBRUN):
        return None  # what is inside it was taken over, at least in part
    if step.link not in (ITEM, ROUND):
        return step.node.path
    return step.node.path + UNIT if step.role == LEAF else None


def _duration_ms(step: Step, event: RunEvent) -> float:
    """Return how long a step took (ms), without the time that its last attempt waited for a worker:
    that depends on the load and not on the node."""
    assert step.finished_at_ms is not None
    ran = (
        step.role == LEAF
        and isinstance(event, AttemptFinished)
        and event.step == step.key
        and event.started_at_ms > 0
    )
    if not ran:
        return step.finished_at_ms - step.ready_at_ms
    assert isinstance(event, AttemptFinished)
    assert step.dispatched_at_ms is not None
    before_ms = step.dispatched_at_ms - step.ready_at_ms
    return before_ms + max(0.0, event.finished_at_ms - event.started_at_ms)
