"""One event being applied: what the rules of all constructs read, change and ask for.

Rules change the run in place and note here what changed and what the shell must do. They do not
call each other across constructs: they put work on `todo`, so that neither nesting nor long loops
grow the stack. An exception leaves the run half changed: it must be read back from its rows.
"""

import heapq
from collections import deque
from math import inf
from typing import Any, Final

from hocket.coordinator.core.run.commands import Announce, Wake
from hocket.coordinator.core.run.plan.nodes import WAIT, Node, PipelinePlan, answers_to
from hocket.coordinator.core.run.plan.step_deadlines import NodeForecast, PlanForecast
from hocket.coordinator.core.run.run_size import counted, error_size, size_of
from hocket.coordinator.core.run.state.messages import Command
from hocket.coordinator.core.run.state.run import (
    ITEM,
    ROUND,
    TERMINAL,
    WAITING,
    Run,
    Step,
)
from hocket.coordinator.core.run.state.values import NULL, Json
from hocket.coordinator.core.time.duration_estimates import Expectation, one_of
from hocket.coordinator.core.time.timestamps import not_before
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import StepChanged
from hocket.schemas.templates.budget import Account

ACTIVATE: Final = 0
"""All needs of a step's node are met."""
SETTLED: Final = 1
"""A step reached a terminal state; its parent must be notified."""
FAILING: Final = 2
"""A step failed; its node's fallbacks are tried before it settles."""
START: Final = 3
"""Begin a step at the outermost layer that its link has not opened yet."""
START_FAST: Final = 4
"""Begin a step with its node's fast variant."""

Work = tuple[int, Step, ErrorInfo | None]

STEP_OPERATIONS: Final = 500
"""Operations charged for beginning a step, apart from its expressions (`templates/budget.py`)."""


class Outcome:
    """The outcome of an event: the steps whose rows must be written (unless they are already
    marked), whether the run's own row must be, and the commands for the shell, in order. `spender`: the
    step of which, and of whose ended run, only what was spent must be written; the run itself if no
    step reports it."""

    __slots__ = ("changed", "commands", "run", "run_changed", "spender")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.commands: list[Command] = []
        self.changed: list[Step] = []
        self.run_changed = False
        self.spender: Step | Run | None = None


class Transition(Outcome):
    """The changes that one event makes to one run."""

    __slots__ = ("account", "failing", "forecast", "now_ms", "plan", "todo", "told")

    def __init__(self, run: Run, forecast: PlanForecast, now_ms: float) -> None:
        super().__init__(run)
        assert run.plan is not None, run.run_id
        run.revision += 1
        self.plan: PipelinePlan = run.plan
        self.forecast = forecast
        self.now_ms: float = not_before(now_ms)
        self.todo: deque[Work] = deque()
        self.failing: set[str] = set()
        """The keys of the steps whose failure is on `todo`."""
        self.account = Account()
        self.told: dict[str, tuple[ErrorInfo, dict[str, Any]]] = {}
        """Errors as expressions see them, by step (`names.py`)."""

    # ---- steps ------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        """Add a new step to the run."""
        self.account.spend(STEP_OPERATIONS)
        self.run.steps[step.key] = step
        within, link = step.within, step.link
        if link == "node":
            within.steps[step.node.place] = step
        elif step.parent is not None:
            _join(step.parent, step)

    def keep(self, step: Step) -> None:
        """Mark a step to be written, and update what is derived from it."""
        run = self.run
        size = step.input.size + step.output.size
        if step.error is not None:
            size += error_size(step.error)
        if step.emitted is not None:
            size += step.emitted.value.size
        if step.waits or step.ended:
            size += _waits_size(step)
        if size != step.size_bytes:
            run.size_bytes += size - step.size_bytes
            step.size_bytes = size
        if step.role == WAIT:
            self._note_wait(step)
        self.note(step)
        if step.state in TERMINAL:
            if step.due_at_ms is not None:
                step.due_at_ms = None
        else:
            self._note_wake(step)
        if run.progress and run.reply_to is not None:
            self._announce(step, run.reply_to)

    def note(self, step: Step) -> None:
        """Mark a step to be written, although nothing that others see has changed."""
        if not step.is_changed:
            step.is_changed = True
            self.changed.append(step)

    def settle(
        self,
        step: Step,
        state: str,
        *,
        output: Json = NULL,
        error: ErrorInfo | None = None,
        degraded: bool = False,
    ) -> None:
        """End a step and notify its parent; raise ValueTooDeep before anything is changed."""
        assert step.state not in TERMINAL, step.key
        _ = output.size
        step.state = state
        step.output = output
        if error is not None:
            step.error = error
        step.finished_at_ms = self.now_ms
        if step.wake_at_ms is not None:
            step.wake_at_ms = None
        if degraded:
            step.degraded = True
        self.keep(step)
        self.todo.append((SETTLED, step, None))

    def fail(self, step: Step, error: ErrorInfo) -> None:
        """Let a step fail, unless its node has a fallback for the error."""
        self.failing.add(step.key)
        self.todo.append((FAILING, step, error))

    # ---- what is expected -------------------------------------------------------------------

    def forecast_of(self, step: Step) -> NodeForecast:
        """Return what to expect of a step and of the path behind it."""
        expected = self.expected(step.home, step.node)
        if step.link == ITEM:
            assert step.parent is not None, step.key
            items = len(step.parent.input.value)
            unit = self._unit(step.home, step.node)
            return NodeForecast(one_of(expected.expectation, unit, 1 - step.index / items))
        if step.link == ROUND:
            unit = self._unit(step.home, step.node)
            done = (step.index - 1) * unit.own.mean_ms / max(1.0, expected.mean_ms)
            return NodeForecast(one_of(expected.expectation, unit, max(0.0, 1 - done)))
        return expected

    def expected(self, home: Step | None, node: Node) -> NodeForecast:
        """Return what to expect of a node as a whole; `home` as in a step."""
        if home is None:
            return self.forecast.nodes[node.index]
        assert home.emitted is not None, home.key
        inside = home.emitted.forecast.nodes[node.index].expectation
        return NodeForecast(self._behind(inside, home))

    def _unit(self, home: Step | None, node: Node) -> Expectation:
        if home is None:
            return self.forecast.unit(node)
        assert home.emitted is not None, home.key
        return self._behind(home.emitted.forecast.unit(node), home)

    def _behind(self, inside: Expectation, home: Step) -> Expectation:
        behind = self.forecast_of(home).expectation
        return Expectation(
            inside.own,
            inside.after.then(behind.after),
            inside.fast,
            inside.after_least.then(behind.after_least),
        )

    # ---- the run ----------------------------------------------------------------------------

    def arm(self, at_ms: float) -> None:
        """Ask for a wake-up, unless an earlier one is pending. One whose time has passed does not
        count: after a rewound log its event may already have been applied, and does not come again.
        For the same reason none is asked for at a time that has passed: the log drops the repeat of
        an event that may already have come."""
        at_ms = max(at_ms, self.now_ms)
        armed_at_ms = self.run.armed_at_ms
        is_covered = armed_at_ms is not None and self.now_ms < armed_at_ms <= at_ms
        if at_ms != inf and not is_covered:
            self.run.armed_at_ms = at_ms
            self.commands.append(Wake(self.run.run_id, at_ms))

    @property
    def operations(self) -> int:
        """The operations that the run's expressions have taken, including those of this event."""
        return self.run.operations + counted(self.account.operations)

    def _note_wake(self, step: Step) -> None:
        at_ms = step.wake_at_ms
        give_up_at_ms = step.give_up_at_ms
        if give_up_at_ms is not None and (at_ms is None or give_up_at_ms < at_ms):
            at_ms = give_up_at_ms
        if at_ms is not None:
            if step.due_at_ms != at_ms:
                heapq.heappush(self.run.wanted_due(), (at_ms, step.key))
            step.due_at_ms = at_ms
            self.arm(at_ms)
        elif step.due_at_ms is not None:
            step.due_at_ms = None

    def _note_wait(self, step: Step) -> None:
        waits = step.state == WAITING
        if waits == step.is_pausing:
            return
        step.is_pausing = waits
        if step.node.pauses:
            self.run.pausing += 1 if waits else -1
        if waits:
            for name in answers_to(step.node, step.key):
                heapq.heappush(self.run.waiting_for(name), step.key)

    def _announce(self, step: Step, reply_to: str) -> None:
        begun = step.dispatched_at_ms if step.dispatched_at_ms is not None else step.ready_at_ms
        finished = step.finished_at_ms
        change = StepChanged(
            run_id=self.run.run_id,
            step=step.key,
            node=step.node.path,
            type=step.node.type,
            state=step.state,
            attempt=step.attempt,
            at_ms=self.now_ms,
            deadline_at_ms=step.deadline_at_ms,
            slack_ms=step.slack_ms,
            duration_ms=None if finished is None else finished - begun,
            error=step.error,
        )
        self.commands.append(Announce(change, reply_to))


def _join(parent: Step, step: Step) -> None:
    if step.link == "fallback":
        if parent.fallbacks is None:
            parent.fallbacks = []
        parent.fallbacks.append(step)
    else:
        assert parent.children is not None, step.key
        parent.children.steps.append(step)


def _waits_size(step: Step) -> int:
    """Return the size of what a handler's waits gave it. A step that has ended keeps none of them: no
    attempt resumes with them, and its row has none."""
    if step.state in TERMINAL:
        step.set_seldom(waits=(), ended=())
    return sum(size_of(one.payload) for one in step.ended)


# ---- time -----------------------------------------------------------------------------------


def next_due_ms(run: Run) -> float:
    """Return the earliest time at which a step wants to be woken (infinite without one)."""
    due = run.due
    while due:
        at_ms, key = due[0]
        if run.steps[key].due_at_ms == at_ms:
            return at_ms
        heapq.heappop(due)
    return inf


def take_due(run: Run, now_ms: float) -> list[Step]:
    """Return the steps that are due by now, each once, in the order of their keys."""
    found: set[str] = set()
    due = run.due
    while due and due[0][0] <= now_ms:
        found.add(heapq.heappop(due)[1])
    steps = [run.steps[key] for key in sorted(found)]
    return [step for step in steps if step.due_at_ms is not None and step.due_at_ms <= now_ms]


# ---- what lives -----------------------------------------------------------------------------


def live_below(run: Run, step: Step | None) -> list[Step]:
    """Return the live steps under a step (None for all of the run), children before their
    parents."""
    found: list[Step] = []
    if step is not None:
        _collect_below(step, found)
    elif run.scope is not None and run.scope.is_open:
        _collect(run.scope.steps, found)
    return found


def _collect_below(step: Step, found: list[Step]) -> None:
    if step.fallbacks:
        _collect(step.fallbacks[-1:], found)
    elif step.children is not None:
        steps = step.children.steps
        _collect(steps[-1:] if step.role == "loop" else steps, found)
    elif step.scope is not None:
        _collect(step.scope.steps, found)


def _collect(steps: "list[Step] | list[Step | None]", found: list[Step]) -> None:
    for step in steps:
        if step is not None and step.state not in TERMINAL:
            _collect_below(step, found)
            found.append(step)
