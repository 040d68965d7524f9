"""Play a pipeline through the pure core: workers are functions, the clock moves when told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hocket.coordinator.core.reuse.repeats import reuse_of
from hocket.coordinator.core.rows.records import (
    RUN_COLUMNS,
    STEP_COLUMNS,
    restore,
    run_of,
    run_row,
    step_of,
    step_row,
)
from hocket.coordinator.core.run.commands import CancelAttempt, Dispatch, EndRun, StartSubRun, Wake
from hocket.coordinator.core.run.decide import Decision, accept, decide
from hocket.coordinator.core.run.state import Run
from hocket.coordinator.core.time.deadlines import outlook
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    LogEvent,
    Priority,
    RunAccepted,
    RunOrigin,
    RunParent,
    StepRequested,
)
from hocket.schemas.pipeline.plan import compile_pipeline

START_MS = 1_000_000.0
Handler = Callable[[StepRequested], Any]


def python(**fields: Any) -> dict[str, Any]:
    """A no-op node."""
    return {"type": "python", "handler": "m:f"} | fields


@dataclass
class Play:
    """One run of a pipeline; `dispatched` is what waits for a worker."""

    nodes: dict[str, Any]
    output: Any = None
    input: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    probe: bool = False
    run_id: str = "r1"
    now_ms: float = START_MS
    parent: RunParent | None = None
    dispatched: list[Dispatch] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    commands: list[Any] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    log: list[tuple[float, LogEvent]] = field(default_factory=list)
    repeats: "Play | None" = None
    """The ended run that this one repeats, as `asked` says."""
    asked: RunOrigin | None = None

    def __post_init__(self) -> None:
        document = {"pipeline": "p", "nodes": self.nodes, "output": self.output} | self.spec
        self.plan = compile_pipeline(document)
        self.outlook = outlook(self.plan, {})
        reuse = None
        if self.repeats is not None:
            assert self.asked is not None
            reuse = reuse_of(self.repeats.read_back(), self.repeats.plan, self.plan, self.asked)
        event = RunAccepted(
            run_id=self.run_id,
            tenant="t",
            pipeline="p",
            version=1,
            input=self.input,
            priority=Priority.STANDARD,
            deadline_at_ms=self.now_ms + self.plan.pipeline.slo_ms,
            budget_usd=self.plan.pipeline.budget_usd,
            probe=self.probe,
            parent=self.parent,
            origin=self.asked,
        )
        self.log.append((self.now_ms, event))
        self._take(
            accept(
                event,
                partition=0,
                now_ms=self.now_ms,
                plan=self.plan,
                outlook=self.outlook,
                epoch=1,
                reuse=reuse,
            )
        )

    def repeat(self, operation: str = "retry", **fields: Any) -> "Play":
        """Return the run that repeats this one: `from_step`, `step_input`, or fields of Play."""
        origin = {k: fields.pop(k) for k in ("from_step", "step_input") if k in fields}
        given = {"nodes": self.nodes, "output": self.output, "input": self.input, "spec": self.spec}
        asked = RunOrigin(run_id=self.run_id, operation=operation, **origin)  # type: ignore[arg-type]
        return Play(**(given | fields), run_id=self.run_id + "+", repeats=self, asked=asked)

    def read_back(self) -> Run:
        """Return the run as a restart reads it from its rows."""
        run = run_of(dict(zip(RUN_COLUMNS, run_row(self.run), strict=True)))
        rows = [step_row(self.run_id, step) for step in self.run.steps.values()]
        steps = [step_of(dict(zip(STEP_COLUMNS, row, strict=True))) for row in rows]
        return restore(run, steps, self.plan)

    def send(self, event: LogEvent) -> Decision:
        self.log.append((self.now_ms, event))
        decision = decide(
            self.run,
            event,
            now_ms=self.now_ms,
            plan=self.plan,
            outlook=self.outlook,
            epoch=1,
        )
        self._take(decision)
        return decision

    def finish(
        self, key: str, output: Any = None, error: ErrorInfo | None = None, **more: Any
    ) -> None:
        """Let the worker that has a step finish it."""
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
            if dispatch.request.step == key:
                return self.dispatched.pop(i).request
        raise AssertionError(f"{key} is not dispatched; these are: {self.waiting()}")

    def waiting(self) -> list[str]:
        return sorted(d.request.step for d in self.dispatched)

    def work(self, handler: Handler) -> Run:
        """Let workers run until nothing is dispatched; an exception with `info` is an error."""
        while self.dispatched and not self.run.ended:
            request = self.dispatched.pop(0).request
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

    def _take(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self.run = decision.run
        for command in decision.commands:
            self.commands.append(command)
            if isinstance(command, Dispatch):
                self.dispatched.append(command)
                self.seen.append(command.request.step)
            elif isinstance(command, CancelAttempt):
                self.dispatched = [d for d in self.dispatched if d.request.step != command.step]
            elif isinstance(command, Wake):
                self.wakes.append(command.at_ms)

    def ends(self) -> list[EndRun]:
        return [c for c in self.commands if isinstance(c, EndRun)]

    def subruns(self) -> list[StartSubRun]:
        return [c for c in self.commands if isinstance(c, StartSubRun)]
