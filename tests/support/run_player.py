"""Play a pipeline through the pure core: workers are functions, and the clock moves when told to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hocket.coordinator.core.run.beginning import accept
from hocket.coordinator.core.run.commands import CancelAttempt, StartSubRun, Wake
from hocket.coordinator.core.run.constructs.reuse import reuse_of
from hocket.coordinator.core.run.machine import apply
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.columns import RUN_COLUMNS, STEP_COLUMNS
from hocket.coordinator.core.run.state.messages import Dispatch, EndRun
from hocket.coordinator.core.run.state.restore import StoredRun, restored
from hocket.coordinator.core.run.state.rows import run_row, step_row
from hocket.coordinator.core.run.state.run import Emitted, Owner, Run
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.duration_estimates import outlook
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    Priority,
    RunAccepted,
    RunEvent,
    RunFinished,
    RunOrigin,
    RunParent,
    StepRequested,
    TimerFired,
)
from hocket.schemas.pipeline.plan import compile_pipeline

START_MS = 1_000_000.0
Handler = Callable[[StepRequested], Any]


OWNER = Owner(0, 1, None)


def request_of(dispatch: Dispatch) -> StepRequested:
    """Return a step's message as its worker reads it."""
    return StepRequested.model_validate_json(dispatch.body(dispatch.slack_ms, 0.0))


def stored(run: Run) -> StoredRun:
    """Return a run as rows as they are read from Postgres."""
    rows = [step_row(run.run_id, step) for step in run.steps.values()]
    return StoredRun(
        dict(zip(RUN_COLUMNS, run_row(run), strict=True)),
        [dict(zip(STEP_COLUMNS, row, strict=True)) for row in rows],
    )


def python(**fields: Any) -> dict[str, Any]:
    """Return a no-op node."""
    return {"type": "python", "handler": "m:f"} | fields


@dataclass
class Play:
    """One run of a pipeline; `dispatched` lists the steps that wait for a worker."""

    nodes: dict[str, Any]
    output: Any = None
    input: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    probe: bool = False
    run_id: str = "r1"
    now_ms: float = START_MS
    parent: RunParent | None = None
    given_usd: Decimal | None = None
    """The budget of the task, or what the caller of a sub-run has left; otherwise the pipeline's own."""
    dispatched: list[Dispatch] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    commands: list[Any] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    log: list[tuple[float, RunEvent]] = field(default_factory=list)
    repeats: "Play | None" = None
    """The ended run that this run repeats, in the way described by `asked`."""
    asked: RunOrigin | None = None

    def __post_init__(self) -> None:
        document = {"pipeline": "p", "nodes": self.nodes, "output": self.output} | self.spec
        self.plan = compile_pipeline(document)
        self.outlook = outlook(self.plan, {})
        self.compiled = PipelinePlan(self.plan)
        self.forecast = PlanForecast(self.compiled, self.outlook)
        reuse = None
        if self.repeats is not None:
            assert self.asked is not None
            reuse = reuse_of(self.repeats.read_back(), self.compiled, self.asked)
        event = RunAccepted(
            run_id=self.run_id,
            tenant="t",
            pipeline="p",
            version=1,
            input=self.input,
            priority=Priority.STANDARD,
            deadline_at_ms=self.now_ms + self.plan.pipeline.slo_ms,
            budget_usd=self.plan.pipeline.budget_usd if self.given_usd is None else self.given_usd,
            probe=self.probe,
            parent=self.parent,
            origin=self.asked,
        )
        self.log.append((self.now_ms, event))
        self._take(
            accept(
                event,
                self.compiled,
                OWNER,
                now_ms=self.now_ms,
                forecast=self.forecast,
                reuse=reuse,
            )
        )

    def repeat(self, operation: str = "retry", **fields: Any) -> "Play":
        """Return the run that repeats this one; `fields` are `from_step`, `step_input`, or fields of
        Play."""
        origin = {k: fields.pop(k) for k in ("from_step", "step_input") if k in fields}
        given = {"nodes": self.nodes, "output": self.output, "input": self.input, "spec": self.spec}
        asked = RunOrigin(run_id=self.run_id, operation=operation, **origin)  # type: ignore[arg-type]
        return Play(**(given | fields), run_id=self.run_id + "+", repeats=self, asked=asked)

    def read_back(self) -> Run:
        """Return the run as it is restored from its rows after a restart."""
        return restored(stored(self.run), self.compiled, OWNER)

    def send(self, event: RunEvent) -> Outcome:
        self.log.append((self.now_ms, event))
        outcome = apply(self.run, event, self.now_ms, self.forecast)
        self._take(outcome)
        return outcome

    def finish(
        self, key: str, output: Any = None, error: ErrorInfo | None = None, **more: Any
    ) -> None:
        """Finish a dispatched step, as its worker would."""
        request = self.take(key)
        self.send(
            AttemptFinished(
                run_id=self.run_id,
                step=key,
                attempt=request.attempt,
                output=output,
                error=error,
                **more,
            )
        )

    def take(self, key: str) -> StepRequested:
        for i, dispatch in enumerate(self.dispatched):
            if dispatch.step == key:
                return request_of(self.dispatched.pop(i))
        raise AssertionError(f"{key} is not dispatched; these are: {self.waiting()}")

    def fire(self) -> None:
        """Move the clock to the earliest requested wake-up, and fire it."""
        at_ms = min(self.wakes)
        self.wakes.remove(at_ms)
        self.now_ms = at_ms
        self.send(TimerFired(run_id="r1", due_at_ms=at_ms))

    def waiting(self) -> list[str]:
        return sorted(d.step for d in self.dispatched)

    def work(self, handler: Handler) -> Run:
        """Run all dispatched steps with `handler` until none is left; an exception must have `info` and
        becomes the step's error."""
        while self.dispatched and not self.run.has_ended:
            request = request_of(self.dispatched.pop(0))
            self.now_ms += 1
            try:
                output, error = handler(request), None
            except Exception as raised:
                output, error = None, raised.info()  # type: ignore[attr-defined]
            self.send(
                AttemptFinished(
                    run_id=self.run_id,
                    step=request.step,
                    attempt=request.attempt,
                    output=output,
                    error=error,
                )
            )
        return self.run

    def _take(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.run = outcome.run
        for step in outcome.changed:
            step.is_changed = False
        for command in outcome.commands:
            self.commands.append(command)
            if isinstance(command, Dispatch):
                self.dispatched.append(command)
                self.seen.append(command.step)
            elif isinstance(command, CancelAttempt):
                self.dispatched = [d for d in self.dispatched if d.step != command.step]
            elif isinstance(command, Wake):
                self.wakes.append(command.at_ms)

    def ends(self) -> list[RunFinished]:
        ends = [command for command in self.commands if isinstance(command, EndRun)]
        return [RunFinished.model_validate_json(end.body()) for end in ends]

    @property
    def emitted(self) -> dict[str, Emitted]:
        """The output of planners, by step."""
        return {key: s.emitted for key, s in self.run.steps.items() if s.emitted is not None}

    def subruns(self) -> list[StartSubRun]:
        return [c for c in self.commands if isinstance(c, StartSubRun)]
