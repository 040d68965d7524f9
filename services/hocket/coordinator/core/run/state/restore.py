"""A run read back from its rows, with everything that is derived from them.

The rows are those of Postgres: columns by name, JSON as text, times as epoch milliseconds. What a
failed rule left half done is discarded together with the run object that it changed.
"""

import heapq
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from pydantic_core import from_json

from hocket.coordinator.core.run.constructs.planned import count_restored, emitted_by
from hocket.coordinator.core.run.plan.nodes import (
    GRAPH,
    LEAF,
    LOOP,
    MAP,
    RACE,
    WAIT,
    Node,
    PipelinePlan,
)
from hocket.coordinator.core.run.run_size import error_size, result_size, size_of
from hocket.coordinator.core.run.state.columns import Columns, parsed
from hocket.coordinator.core.run.state.run import (
    FALLBACK,
    KEY_MARKS,
    NODE,
    OPEN,
    TERMINAL,
    WAITING,
    Children,
    Owner,
    PastAttempt,
    Run,
    ScopeProgress,
    Signal,
    Source,
    Step,
    signals_awaited,
)
from hocket.coordinator.core.run.state.values import NULL, Json, compact, json_of
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    HandlerWait,
    Priority,
    RunOrigin,
    RunParent,
    Timing,
    WaitEnded,
)


class StoredRun(NamedTuple):
    """A run as Postgres has it: its row, and those of its steps in any order."""

    row: Columns
    steps: list[Columns]


def restored(stored: StoredRun, plan: PipelinePlan, owner: Owner) -> Run:
    """Return a run with its steps, in flight or ended."""
    run = run_of(stored.row, plan, owner)
    run.scope = ScopeProgress(plan.root, None, None)
    run.scope.is_open = not run.has_ended
    for columns in sorted(stored.steps, key=_outer_first):
        _take_in(run, columns)
    for step in run.steps.values():
        _derive(run, step)
    held = sum(result_size(event) for event in (run.early or {}).values())
    unread = sum(size_of(signal.payload) for signal in run.signals)
    run.size_bytes += run.input.size + held + unread
    return run


def readable(row: Columns) -> tuple[Run, Exception | None]:
    """Return the run of a row, without plan and steps; if it cannot be read, what remains of it and
    the reason."""
    try:
        return run_of(row), None
    except Exception as error:
        return _remains_of(row), error


def run_of(row: Columns, plan: PipelinePlan | None = None, owner: Owner | None = None) -> Run:
    """Return the run of a row, without steps; `owner` is not needed for a run that has ended."""
    facts = parsed(row["facts"]) or {}
    error, parent = parsed(row["error"]), parsed(row["parent"])
    owner = owner or Owner(row["partition"], 0, None)
    run = _plain_run_of(row, plan, owner, _value(row["input"]))
    run.output = _value(row["output"])
    run.error = None if error is None else ErrorInfo.model_validate(error)
    run.set_seldom(
        parent=None if parent is None else RunParent.model_validate(parent),
        origin=None if "origin" not in facts else RunOrigin.model_validate(facts["origin"]),
        labels=parsed(row["labels"]),
        probe=facts.get("probe", False),
        paused_at_ms=facts.get("paused_at_ms"),
        signals=tuple(Signal(**signal) for signal in facts.get("signals", ())),
        seen_signals=tuple(facts.get("seen_signals", ())),
    )
    charges = {source: Decimal(usd) for source, usd in facts.get("charges", ())}
    untold = {source: Decimal(usd) for source, usd in facts.get("untold", ())}
    run.set_seldom(early=_early_of(facts) or None, charges=charges or None, untold=untold or None)
    run.operations = facts.get("operations", 0)
    run.critical_path = tuple(tuple(piece) for piece in parsed(row["critical_path"]) or ())
    return run


def _early_of(facts: dict[str, Any]) -> dict[tuple[str, int], AttemptFinished]:
    """Return the held results of attempts that have not been dispatched yet."""
    held = map(AttemptFinished.model_validate, facts.get("early", ()))
    return {(event.step, event.attempt): event for event in held}


def _plain_run_of(row: Columns, plan: PipelinePlan | None, owner: Owner, given: Json) -> Run:
    """Return a run made from the columns that are not JSON."""
    run = Run(
        owner,
        plan,
        run_id=row["run_id"],
        tenant=row["tenant"],
        pipeline=row["pipeline"],
        version=row["version"],
        priority=Priority(row["priority"]),
        given=given,
        accepted_at_ms=row["accepted_at"],
        deadline_at_ms=row["deadline_at"],
    )
    run.status = row["status"]
    run.finished_at_ms = row["finished_at"]
    run.budget_usd = row["budget_usd"]
    run.spent_usd = Decimal(row["spent_usd"])
    run.set_seldom(degraded=row["degraded"], traceparent=row["traceparent"])
    run.idempotency_key = row["idempotency_key"]
    run.reply_to = row["reply_to"]
    run.progress = row["progress"]
    return run


def _remains_of(row: Columns) -> Run:
    """Return the run of a row as far as it can be read."""
    run = _plain_run_of(row, None, Owner(row["partition"], 0, None), json_of({}))
    run.error = _read(row["error"], ErrorInfo.model_validate)
    run.parent = _read(row["parent"], RunParent.model_validate)
    run.labels = _read(row["labels"], dict)
    return run


def _read(text: str | None, read: Callable[[Any], Any]) -> Any:
    try:
        return None if text is None else read(from_json(text))
    except ValueError:
        return None


def _take_in(run: Run, row: Columns) -> None:
    """Make a step from its row and put it in its place; its parent and its planner must already be
    there."""
    facts = parsed(row["facts"]) or {}
    parent = run.steps[row["parent"]] if row["parent"] else None
    link: str = facts.get("link", NODE)
    within = _within(run, parent, link)
    node = _node_of(run, facts.get("home", ""), row["path"])
    step = Step(
        row["key"],
        node,
        row["role"],
        link,
        parent,
        within,
        facts.get("index", 0),
        row["ready_at"],
    )
    _fill(step, row, facts)
    run.steps[step.key] = step
    _place(step, parent, within)
    if "emitted" in facts:
        assert run.plan is not None, run.run_id
        value, degrades = json_of(facts["emitted"]), run.plan.degrades
        step.emitted = emitted_by(step, value, degrades=degrades, applied=True)
        step.scope = ScopeProgress(step.emitted.plan.root, step, step)
        step.scope.is_open = step.state == OPEN
    elif step.role == GRAPH and node.body is not None:
        step.scope = ScopeProgress(node.body, step, step.home)
        step.scope.is_open = step.state == OPEN


def _within(run: Run, parent: Step | None, link: str) -> ScopeProgress:
    """Return the scope whose names a step sees."""
    if parent is None:
        assert run.scope is not None
        return run.scope
    if link != NODE:
        return parent.within
    assert parent.scope is not None, parent.key
    return parent.scope


def _node_of(run: Run, home: str, path: str) -> Node:
    if not home:
        assert run.plan is not None, run.run_id
        return run.plan.by_path[path]
    emitted = run.steps[home].emitted
    assert emitted is not None, home
    return emitted.plan.by_path[path]


def _fill(step: Step, row: Columns, facts: Mapping[str, Any]) -> None:
    error = parsed(row["error"])
    step.state = row["state"]
    step.attempt = row["attempt"]
    step.input = _value(row["input"])
    step.output = _value(row["output"])
    step.dispatched_at_ms = row["dispatched_at"]
    step.started_at_ms = row["started_at"]
    step.finished_at_ms = row["finished_at"]
    step.deadline_at_ms = row["deadline_at"]
    step.slack_ms = row["slack_ms"]
    step.worker = row["worker"]
    step.queued_at_ms = row["queued_at"]
    step.took_ms = row["took_ms"]
    step.set_seldom(
        error=None if error is None else ErrorInfo.model_validate(error),
        wake_at_ms=row["wake_at"],
        degraded=facts.get("degraded", False),
        give_up_at_ms=facts.get("give_up_at_ms"),
        winner=facts.get("winner", ""),
        cache_key=facts.get("cache_key"),
        source=_source(facts.get("source")),
        counted=tuple((a, d, Decimal(cost)) for a, d, cost in facts.get("counted", ())),
        charged_usd=Decimal(facts.get("charged_usd", 0)),
        timing=_timing(facts.get("timing")),
        tries=tuple(_try(one) for one in facts.get("tries", ())),
        suspensions=facts.get("suspensions", 0),
        untried=facts.get("untried", 0),
        waits=tuple(HandlerWait(**one) for one in facts.get("waits", ())),
        ended=tuple(WaitEnded(**one) for one in facts.get("ended", ())),
    )
    step.capable = facts.get("capable", False)


def _try(facts: Mapping[str, Any]) -> PastAttempt:
    return PastAttempt(
        facts["dispatched_at_ms"],
        facts["finished_at_ms"],
        facts.get("queued_at_ms"),
        facts.get("started_at_ms"),
        facts.get("took_ms"),
        _timing(facts.get("timing")),
        is_suspended=facts.get("is_suspended", False),
    )


def _place(step: Step, parent: Step | None, within: ScopeProgress) -> None:
    if step.link == NODE:
        within.steps[step.node.place] = step
    elif parent is not None and step.link == FALLBACK:
        parent.fallbacks = [*(parent.fallbacks or ()), step]
    elif parent is not None:
        if parent.children is None:
            parent.children = Children(started=0, running=0)
        parent.children.steps.append(step)


# ---- what is derived --------------------------------------------------------------------------


def _derive(run: Run, step: Step) -> None:
    """Derive what an event needs to know of a step besides its row."""
    run.size_bytes += _measured(step)
    count_restored(step)
    if step.role == RACE and step.children is not None:
        order = [branch.name for branch in step.node.branches]
        step.children.steps.sort(key=lambda child: order.index(child.node.name))
    if step.role == LEAF and step.children is not None:
        step.children.started = max(called.index for called in step.children.steps)
    if step.state not in TERMINAL:
        _derive_live(run, step)
    elif step.link == NODE:
        _count_done(step)


def _measured(step: Step) -> int:
    size = step.input.size + step.output.size
    if step.error is not None:
        size += error_size(step.error)
    if step.emitted is not None:
        size += step.emitted.value.size
    if step.ended:
        size += sum(size_of(one.payload) for one in step.ended)
    step.size_bytes = size
    return size


def _derive_live(run: Run, step: Step) -> None:
    times = [at_ms for at_ms in (step.wake_at_ms, step.give_up_at_ms) if at_ms is not None]
    if times:
        step.due_at_ms = min(times)
        heapq.heappush(run.wanted_due(), (step.due_at_ms, step.key))
    if step.state == OPEN:
        _derive_children(step)
    if step.role == WAIT and step.state == WAITING:
        step.is_pausing = True
        run.pausing += step.node.pauses
    if step.state == WAITING:
        for name in set(signals_awaited(step)):
            heapq.heappush(run.waiting_for(name), step.key)


def _count_done(step: Step) -> None:
    within = step.within
    within.left -= 1
    for place in step.node.dependents:
        within.pending[place] -= 1


def _derive_children(step: Step) -> None:
    if step.fallbacks:
        if step.scope is not None:
            step.scope.is_open = False
        return
    if step.children is None:
        if step.role == MAP:
            step.children = Children(started=0, running=0)
        return
    children = step.children
    running = sum(1 for child in children.steps if child.state not in TERMINAL)
    children.started = len(children.steps)
    children.running = 1 if step.role == LOOP else running


def _outer_first(row: Columns) -> tuple[int, int, str]:
    """Return a sort key that puts parents and planners before what is under them, and children in
    the order of their numbers."""
    facts = parsed(row["facts"]) or {}
    key: str = row["key"]
    depth = sum(key.count(mark) for mark in KEY_MARKS)
    return depth, facts.get("index", 0), key


def _value(text: str | None) -> Json:
    """Return a value as the text of its JSON, of which the object that Python makes takes ten times the
    memory."""
    return NULL if text is None or text == "null" else compact(parsed(text))


def _timing(facts: Mapping[str, float] | None) -> Timing | None:
    return None if facts is None else Timing(**facts)


def _source(facts: Mapping[str, Any] | None) -> Source | None:
    if facts is None:
        return None
    return Source(facts["kind"], facts["run_id"], facts["step"], Decimal(facts.get("saved_usd", 0)))
