"""The runs of a play: applies events one after the other, by the coordinator's rules."""

from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hocket.coordinator.core.run.beginning import accept, refuse
from hocket.coordinator.core.run.machine import apply
from hocket.coordinator.core.run.plan.nodes import LEAF, PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.run import (
    BACKOFF,
    TERMINAL,
    WAITING,
    Owner,
    Run,
    Step,
    signals_awaited,
)
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.duration_estimates import outlook
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import AttemptFinished, RunAccepted, RunEvent, SignalReceived
from hocket.schemas.pipeline.plan import check_input
from hocket.testing.attempts import Attempts
from hocket.testing.commands import Commands
from hocket.testing.stand_ins.catalog import PlayedCatalog
from hocket.testing.stand_ins.clock import PlayLoop
from hocket.testing.trace import Trace


@dataclass(frozen=True, slots=True)
class Signal:
    """An answer that a step gets `after_ms` after it starts waiting."""

    name: str
    payload: Any
    by: str
    after_ms: float


@dataclass(slots=True)
class _Running:
    run: Run
    forecast: PlanForecast | None
    told: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The state and attempt of each step when they were last traced."""


class World:
    """The runs of one play, recorded in `trace`. `ended` is done when the first run has ended."""

    def __init__(
        self,
        loop: PlayLoop,
        trace: Trace,
        catalog: PlayedCatalog,
        signals: tuple[Signal, ...],
    ) -> None:
        self.ended = loop.create_future()
        self._loop = loop
        self._owner = Owner(0, 1, None)  # remembers a run by its id, which all plays share
        self._trace = trace
        self._catalog = catalog
        self._signals = list(signals)
        self._answered: set[tuple[str, str, tuple[str, int]]] = set()
        """The places in journals whose signal has been sent, by run and step."""
        self._runs: dict[str, _Running] = {}
        self._events: deque[RunEvent] = deque()
        self._top = ""
        self._commands: Commands | None = None

    def start(self, event: RunAccepted, attempts: Attempts) -> None:
        """Start the run that is played."""
        self._top = event.run_id
        self._commands = Commands(self._loop, attempts, self._trace, self.happens, self._run_ended)
        self.happens(event)

    @property
    def run(self) -> Run:
        """The run that is played."""
        return self._runs[self._top].run

    @property
    def waiting(self) -> list[str]:
        """The steps that have not ended."""
        return [step.key for step in self.run.live()][:10]

    def happens(self, event: RunEvent) -> None:
        """Deliver an event to its run, after those that came before."""
        self._events.append(event)
        self._loop.call_soon(self._next)

    def finished(self, event: AttemptFinished) -> None:
        """Deliver the result of an attempt."""
        self._trace.finished(event)
        self.happens(event)

    def breaks(self, error: BaseException) -> None:
        """End the play with an error of the test, or a bug of ours."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def _next(self) -> None:
        if self.ended.done():
            return
        try:
            self._take(self._events.popleft())
        except Exception as error:
            self.breaks(error)

    def _take(self, event: RunEvent) -> None:
        if isinstance(event, RunAccepted):
            self._accept(event)
            return
        running = self._runs.get(event.run_id)
        if running is not None:
            now_ms = self._loop.now_ms()
            self._took(running, apply(running.run, event, now_ms, running.forecast))

    def _accept(self, event: RunAccepted) -> None:
        now_ms = self._loop.now_ms()
        forecast = None
        self._trace.accepted(event.run_id, event.pipeline)
        try:
            version, plan = self._catalog.version(event.tenant, event.pipeline, event.version)
            check_input(plan, event.input)
        except HocketError as error:
            outcome = refuse(event, error.info(), self._owner, now_ms=now_ms)
        else:
            event = event.model_copy(update={"version": version})
            compiled = PipelinePlan(plan)
            forecast = PlanForecast(compiled, outlook(plan, {}))
            outcome = accept(event, compiled, self._owner, now_ms=now_ms, forecast=forecast)
        running = self._runs[event.run_id] = _Running(outcome.run, forecast)
        self._took(running, outcome)

    def _took(self, running: _Running, outcome: Outcome) -> None:
        """Trace what an event changed, and carry out its commands."""
        assert self._commands is not None
        for step in outcome.changed:
            step.is_changed = False
            state = (step.state, step.attempt)
            if running.told.get(step.key) != state:
                running.told[step.key] = state
                self._changed(outcome.run, step)
        for command in outcome.commands:
            self._commands.carry_out(outcome.run, command)

    def _changed(self, run: Run, step: Step) -> None:
        if step.state in TERMINAL or step.state in (WAITING, BACKOFF):
            reason = "" if step.error is None else f": {step.error.code}"
            degraded = ", degraded" if step.degraded else ""
            self._trace.note(run.run_id, step.key, f"{step.state}{degraded}{reason}")
        if step.state == WAITING:
            self._answer(run, step)

    def _answer(self, run: Run, step: Step) -> None:
        """Send the answers that the test has for a step that starts waiting: one for its node, or one
        for each signal that its handler has begun to wait for."""
        if step.role != LEAF:
            self._send(run, step, signals_awaited(step))
            return
        for wait in step.waits:
            place = (run.run_id, step.key, wait.key)
            if wait.signal is None or place in self._answered:
                continue
            if self._send(run, step, (wait.signal,)):
                self._answered.add(place)

    def _send(self, run: Run, step: Step, names: tuple[str, ...]) -> bool:
        """Send the first signal with one of these names, or that of the step's node, if there is one."""
        for signal in self._signals:
            if signal.name in (*names, step.node.path):
                self._signals.remove(signal)
                event = SignalReceived(
                    run_id=run.run_id,
                    signal_id=f"signal-{len(self._signals)}",
                    name=signal.name if signal.name in names else names[0],
                    payload=deepcopy(signal.payload),
                    by=signal.by,
                )
                self._loop.call_later(signal.after_ms / 1000, self._signalled, event)
                return True
        return False

    def _signalled(self, event: SignalReceived) -> None:
        self._trace.note(event.run_id, event.name, f"answered by {event.by}")
        self.happens(event)

    def _run_ended(self, run: Run) -> None:
        if run.run_id == self._top and not self.ended.done():
            self.ended.set_result(None)
