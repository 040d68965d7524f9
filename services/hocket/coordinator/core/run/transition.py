"""The working copy of a run while one event is decided: what the rules read and change.

A local, mutable view: `begin` opens it on a frozen Run, the rules in `graph`, `containers`,
`attempts` and `waits` change it, `close` gives the new frozen Run. Rules do not call each other
across modules; they put work on `todo`, so that neither nesting nor long loops grow the stack.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from immutables import Map

from hocket.coordinator.core.run.commands import Announce, Command, Wake
from hocket.coordinator.core.run.run_size import counted, growth
from hocket.coordinator.core.run.state import (
    TERMINAL,
    ChildProgress,
    ParentRelation,
    Role,
    Run,
    Scope,
    Step,
    StepState,
    wake_of,
)
from hocket.coordinator.core.structures.frozen import maker, replace
from hocket.coordinator.core.structures.heap import Heap, pop, push
from hocket.coordinator.core.time.deadlines import (
    NOTHING,
    UNIT,
    DurationForecast,
    Estimate,
    Expectation,
    one_of,
)
from hocket.coordinator.core.time.timestamps import not_before
from hocket.coordinator.core.waiting.signal_waiters import answers_to, first, pauses
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import StepChanged
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan
from hocket.schemas.templates.budget import Account, Names

STEP_OPERATIONS = 500
"""What beginning a step counts beside its expressions (`templates/budget.py`)."""
UNKNOWN = Expectation(Estimate(50.0, 625.0), NOTHING)


@dataclass(frozen=True, slots=True)
class Activate:
    """All needs of a node in a scope are met."""

    scope: str
    name: str


@dataclass(frozen=True, slots=True)
class Settled:
    """A step reached a terminal state; its parent must hear of it."""

    key: str


@dataclass(frozen=True, slots=True)
class Failing:
    """A step failed; its node's fallbacks are asked before it settles."""

    key: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a step of a node, from the given layer inward (node, item, round)."""

    key: str
    plan: NodePlan
    home: str
    link: ParentRelation
    parent: str
    index: int = 0
    input: Any = None
    """What a branch or fallback without a `with` of its own takes over."""
    fast: bool = False
    """The node's fast variant is to serve from the start."""


Work = Activate | Settled | Failing | Start
new_start = maker(Start)


@dataclass(slots=True)
class RunTransition:
    """The changes that one event makes to one run, and the commands that follow. `changed` are the
    keys of the steps whose rows must be written."""

    run: Run
    plan: Plan
    outlook: DurationForecast
    now_ms: float
    epoch: int
    steps: Any
    scopes: Any
    tallies: Any
    live: Any
    wakes: Any
    emitted: Any
    due: Heap
    waiting: Map[str, Heap]
    pausing: int
    commands: list[Command] = field(default_factory=list)
    changed: dict[str, None] = field(default_factory=dict)
    todo: deque[Work] = field(default_factory=deque)
    run_changed: bool = False
    size_bytes: int = 0
    account: Account = field(default_factory=Account)
    """What the expressions that this event asks for use."""
    capabilities: Capabilities | None = None

    # ---- plan -------------------------------------------------------------------------------

    def node_plan(self, step: Step) -> NodePlan:
        return self.by_path(step.home)[step.path]

    def by_path(self, home: str) -> Mapping[str, NodePlan]:
        return self.emitted[home].by_path if home else self.plan.by_path

    def scope_plan(self, scope: str) -> ScopePlan:
        if not scope:
            return self.plan.root
        emitted = self.emitted.get(scope)
        if emitted is not None:
            return emitted.scope  # type: ignore[no-any-return]
        body = self.node_plan(self.steps[scope]).body
        assert body is not None, scope
        return body

    def home_of(self, scope: str) -> str:
        """Return the key of the planning step whose nodes this scope holds ("" for the spec's)."""
        if not scope or scope in self.emitted:
            return scope
        return self.steps[scope].home  # type: ignore[no-any-return]

    def expectation(self, step: Step) -> Expectation:
        """Return what to expect of a step and of the path behind it."""
        expected = self.expected(step.home, step.path)
        if step.link is ParentRelation.ITEM:
            items = len(self.steps[step.parent].input)
            return one_of(
                expected, self.expected(step.home, step.path + UNIT), 1 - step.index / items
            )
        if step.link is ParentRelation.ROUND:
            unit = self.expected(step.home, step.path + UNIT)
            done = (step.index - 1) * unit.own.mean_ms / max(1.0, expected.own.mean_ms)
            return one_of(expected, unit, max(0.0, 1 - done))
        return expected

    def expected(self, home: str, path: str) -> Expectation:
        """Return what to expect of a node; `home` as in a step."""
        if not home:
            return self.outlook.get(path, UNKNOWN)
        inside: Expectation = self.emitted[home].outlook.get(path, UNKNOWN)
        behind = self.expectation(self.steps[home])
        return Expectation(
            inside.own,
            inside.after.then(behind.after),
            inside.fast,
            inside.after_least.then(behind.after_least),
        )

    # ---- steps ------------------------------------------------------------------------------

    def put(self, step: Step) -> Step:
        """Keep a step, and with it the sets derived from it."""
        if step.role is Role.WAIT:
            self._note_wait(step)
        before: Step | None = self.steps.get(step.key)
        if before is None:
            self.account.spend(STEP_OPERATIONS)
        self.size_bytes += growth(before, step)
        self.steps[step.key] = step
        self.changed[step.key] = None
        if step.state in TERMINAL:
            self.live.pop(step.key, None)
            self.wakes.pop(step.key, None)
        else:
            self.live[step.key] = None
            wake_at_ms = wake_of(step)
            if wake_at_ms is not None:
                self._note_wake(step.key, wake_at_ms)
            else:
                self.wakes.pop(step.key, None)
        self._announce(step)
        return step

    def note(self, step: Step) -> Step:
        """Keep a step of which nothing changed that others see."""
        self.steps[step.key] = step
        self.changed[step.key] = None
        return step

    def settle(
        self,
        key: str,
        state: StepState,
        *,
        output: Any = None,
        error: ErrorInfo | None = None,
        degraded: bool = False,
    ) -> None:
        """End a step and let its parent hear of it."""
        self.settle_as(self.steps[key], state, output=output, error=error, degraded=degraded)

    def settle_as(
        self,
        step: Step,
        state: StepState,
        *,
        output: Any = None,
        error: ErrorInfo | None = None,
        degraded: bool = False,
    ) -> None:
        """End a step that need not be kept as it is now, and let its parent hear of it."""
        key = step.key
        assert step.state not in TERMINAL, key
        self.put(
            replace(
                step,
                state=state,
                output=output,
                error=error if error is not None else step.error,
                finished_at_ms=self.now_ms,
                wake_at_ms=None,
                degraded=step.degraded or degraded,
            )
        )
        self.tallies.pop(key, None)
        self.todo.append(Settled(key))

    def below(self, key: str) -> list[str]:
        """Return the keys of the live steps under a step ("" for all of the run), children before
        their parents."""
        found: list[str] = []
        self._live_below(key, found)
        return found

    def live_keys(self) -> list[str]:
        """Return the keys of the steps that have not ended, sorted."""
        live = self.live.finish()
        self.live = live.mutate()
        return sorted(live)

    def take_due(self) -> list[str]:
        """Return the keys of the steps that want to be woken by now, sorted, once."""
        found: set[str] = set()
        while (at_ms := self.next_due()) <= self.now_ms:
            while self.due is not None and self.due[1][0] == at_ms:
                found.add(self.due[1][1])
                self.due = pop(self.due)
        return sorted(key for key in found if self.wakes.get(key, inf) <= self.now_ms)

    def next_due(self) -> float:
        """Return the earliest time at which a step wants to be woken (infinite without one)."""
        while self.due is not None:
            at_ms, key = self.due[1]
            if self.wakes.get(key) == at_ms:
                return float(at_ms)
            self.due = pop(self.due)
        return inf

    def waits_for(self, name: str) -> Step | None:
        """Return the first step, by key, that waits for a signal of this name."""
        step, rest = first(self.waiting.get(name), self.steps)
        if rest is None:
            self.waiting = self.waiting.delete(name) if name in self.waiting else self.waiting
        else:
            self.waiting = self.waiting.set(name, rest)
        return step

    # ---- the run ----------------------------------------------------------------------------

    def change(self, **fields: Any) -> None:
        """Change fields of the run's own row."""
        self.run = replace(self.run, **fields)
        self.run_changed = True

    def arm(self, at_ms: float) -> None:
        """Ask for a wake-up, unless an earlier one is already asked for."""
        armed = self.run.armed_at_ms
        if at_ms == inf:
            return
        if armed is None or at_ms < armed:
            self.run = replace(self.run, armed_at_ms=at_ms)
            self.commands.append(Wake(self.run.run_id, at_ms))

    # ---- names that expressions see ---------------------------------------------------------

    def names(self, scope: str) -> Names:
        """Return the lexical scope of a scope's nodes: `input`, `nodes`, `run`."""
        given = self.run.input if not scope else self.steps[scope].input
        run = {
            "id": self.run.run_id,
            "pipeline": self.run.pipeline,
            "version": self.run.version,
            "tenant": self.run.tenant,
        }
        nodes = NodesView(self, scope)
        return Names(self.account, {"input": given, "nodes": nodes, "run": run})

    def names_at(self, step: Step) -> Names:
        """Return what the expressions of a step's node see: its scope, and the item, round and
        error of the containers between the scope and the step."""
        layers: dict[str, Any] = {}
        while step.link is not ParentRelation.NODE:
            parent = self.steps[step.parent]
            if step.link is ParentRelation.ITEM:
                spec = self.node_plan(parent).node.map
                assert spec is not None, step.key
                layers.setdefault(spec.as_, parent.input[step.index])
                layers.setdefault("index", step.index)
            elif step.link is ParentRelation.ROUND:
                before = self.steps.get(f"{step.parent}#{step.index - 1}")
                layers.setdefault("round", step.index)
                layers.setdefault("previous", None if before is None else before.output)
            elif step.link is ParentRelation.FALLBACK:
                layers.setdefault("error", parent.error and parent.error.model_dump(mode="json"))
            step = parent
        return self.names(step.parent).also(**layers)

    @property
    def operations(self) -> int:
        """What the run's expressions have taken, those of this event included."""
        return self.run.operations + counted(self.account.operations)

    def close(self) -> Run:
        return replace(
            self.run,
            steps=self.steps.finish(),
            scopes=self.scopes.finish(),
            tallies=self.tallies.finish(),
            live=self.live.finish(),
            wakes=self.wakes.finish(),
            emitted=self.emitted.finish(),
            due=self.due,
            waiting=self.waiting,
            pausing=self.pausing,
            size_bytes=self.size_bytes,
        )

    def _live_below(self, key: str, found: list[str]) -> None:
        for child in self._children(key):
            step = self.steps.get(child)
            if step is not None and step.state not in TERMINAL:
                self._live_below(child, found)
                found.append(child)

    def _children(self, key: str) -> Iterable[str]:
        """Return the keys that the children of a step have, or will have when they start."""
        if key in self.scopes:
            return [child_key(key, name) for name in self.scope_plan(key).nodes]
        tally: ChildProgress | None = self.tallies.get(key)
        if tally is None:
            return ()
        fallback = f"{key}!{tally.started}"
        if fallback in self.steps:
            return (fallback,)
        step: Step = self.steps[key]
        if step.role is Role.MAP:
            return (f"{key}[{index}]" for index in range(tally.started))
        if step.role is Role.LOOP:
            return (f"{key}#{tally.started}",)
        return [f"{key}~{name}" for name in self.node_plan(step).branches]

    def _note_wake(self, key: str, at_ms: float) -> None:
        if self.wakes.get(key) != at_ms:
            self.wakes[key] = at_ms
            self.due = push(self.due, (at_ms, key))
        self.arm(at_ms)

    def _note_wait(self, step: Step) -> None:
        before: Step | None = self.steps.get(step.key)
        waited = before is not None and before.state is StepState.WAITING
        waits = step.state is StepState.WAITING
        if waits == waited:
            return
        plan = self.node_plan(step)
        if pauses(plan):
            self.pausing += 1 if waits else -1
        if waits:
            for name in answers_to(plan, step.key):
                self.waiting = self.waiting.set(name, push(self.waiting.get(name), step.key))

    def _announce(self, step: Step) -> None:
        if not self.run.progress or self.run.reply_to is None:
            return
        begun = step.dispatched_at_ms if step.dispatched_at_ms is not None else step.ready_at_ms
        finished = step.finished_at_ms
        change = StepChanged(
            run_id=self.run.run_id,
            step=step.key,
            node=step.path,
            type=step.type,
            state=step.state,
            attempt=step.attempt,
            at_ms=self.now_ms,
            deadline_at_ms=step.deadline_at_ms,
            slack_ms=step.slack_ms,
            duration_ms=None if finished is None else finished - begun,
            error=step.error,
        )
        self.commands.append(Announce(change, self.run.reply_to))


class NodesView(Mapping[str, Any]):
    """`nodes` in an expression: each node of the scope as `{output, error, state}`; a node that was
    skipped, or failed and is optional, has the output null."""

    def __init__(self, unfolding: RunTransition, scope: str) -> None:
        self._unfolding = unfolding
        self._scope = scope

    def __getitem__(self, name: str) -> dict[str, Any]:
        step: Step = self._unfolding.steps[child_key(self._scope, name)]
        error = None if step.error is None else step.error.model_dump(mode="json")
        return {"output": step.output, "error": error, "state": str(step.state)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._unfolding.scope_plan(self._scope).nodes)

    def __len__(self) -> int:
        return len(self._unfolding.scope_plan(self._scope).nodes)


def begin(
    run: Run,
    *,
    plan: Plan,
    outlook: DurationForecast,
    now_ms: float,
    epoch: int,
    capabilities: Capabilities | None = None,
) -> RunTransition:
    """Open a run for one event."""
    return RunTransition(
        capabilities=capabilities,
        run=run,
        plan=plan,
        outlook=outlook,
        now_ms=not_before(now_ms),
        epoch=epoch,
        steps=run.steps.mutate(),
        scopes=run.scopes.mutate(),
        tallies=run.tallies.mutate(),
        live=run.live.mutate(),
        wakes=run.wakes.mutate(),
        emitted=run.emitted.mutate(),
        due=run.due,
        waiting=run.waiting,
        pausing=run.pausing,
        size_bytes=run.size_bytes,
    )


def child_key(scope: str, name: str) -> str:
    """Return the key of a node's step in a scope."""
    return f"{scope}/{name}" if scope else name


def new_scope(plan: ScopePlan) -> Scope:
    """Return the progress of a scope in which nothing is done."""
    return Scope(
        pending=Map({n.name: len(n.needs) for n in plan.nodes.values() if n.needs}),
        left=len(plan.nodes),
    )
