"""A run and its steps as rows, and back. `restore(rows_of(run))` is the same run.

Rows are tuples in the order of RUN_COLUMNS, STEP_COLUMNS and ATTEMPT_COLUMNS; JSON columns hold text,
times are epoch milliseconds.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from immutables import Map
from pydantic_core import from_json, to_json

from hocket.coordinator.core.graph.expansion import with_counts
from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.run_size import run_size
from hocket.coordinator.core.run.state import (
    TERMINAL,
    ChildProgress,
    Emitted,
    ParentRelation,
    PastAttempt,
    Role,
    Run,
    RunStatus,
    Scope,
    Segment,
    Signal,
    Source,
    Step,
    StepState,
    wake_of,
)
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.structures.heap import Heap, push
from hocket.coordinator.core.time.deadlines import emitted_outlook
from hocket.coordinator.core.waiting.signal_waiters import answers_to, pauses
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import AttemptFinished, Priority, RunOrigin, RunParent, Timing
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan, compile_emitted
from hocket.schemas.pipeline.spec import PlanningNode

Row = tuple[Any, ...]
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape of U+0000 in a JSON text, and not the six characters that look like it."""

RUN_COLUMNS: Mapping[str, str] = {
    "run_id": "text",
    "partition": "integer",
    "tenant": "text",
    "pipeline": "text",
    "version": "integer",
    "status": "text",
    "priority": "text",
    "input": "jsonb",
    "output": "jsonb",
    "error": "jsonb",
    "idempotency_key": "text",
    "accepted_at": "timestamptz",
    "deadline_at": "timestamptz",
    "finished_at": "timestamptz",
    "budget_usd": "numeric",
    "spent_usd": "numeric",
    "degraded": "boolean",
    "reply_to": "text",
    "progress": "boolean",
    "traceparent": "text",
    "parent": "jsonb",
    "facts": "jsonb",
    "critical_path": "jsonb",
    "parked_until": "timestamptz",
    "labels": "jsonb",
}
STEP_COLUMNS: Mapping[str, str] = {
    "run_id": "text",
    "key": "text",
    "path": "text",
    "type": "text",
    "role": "text",
    "parent": "text",
    "state": "text",
    "attempt": "integer",
    "input": "jsonb",
    "output": "jsonb",
    "error": "jsonb",
    "ready_at": "timestamptz",
    "dispatched_at": "timestamptz",
    "started_at": "timestamptz",
    "finished_at": "timestamptz",
    "deadline_at": "timestamptz",
    "slack_ms": "double precision",
    "wake_at": "timestamptz",
    "worker": "text",
    "facts": "jsonb",
    "queued_at": "timestamptz",
    "took_ms": "double precision",
}
ATTEMPT_COLUMNS: Mapping[str, str] = {
    "run_id": "text",
    "key": "text",
    "attempt": "integer",
    "outcome": "text",
    "error": "jsonb",
    "dispatched_at": "timestamptz",
    "started_at": "timestamptz",
    "finished_at": "timestamptz",
    "worker": "text",
}


def run_row(run: Run, *, first: bool = True, parked_until_ms: float | None = None) -> Row:
    """Return a run's own row; input and labels, which never change, only in the first.
    `parked_until_ms`: until when it need not be in memory (`parking.py`)."""
    return (
        run.run_id,
        run.partition,
        run.tenant,
        run.pipeline,
        run.version,
        run.status.value,
        run.priority.value,
        _json(run.input) if first else "{}",
        _json(run.output),
        _json(run.error),
        run.idempotency_key,
        run.accepted_at_ms,
        run.deadline_at_ms,
        run.finished_at_ms,
        run.budget_usd,
        run.spent_usd,
        run.degraded,
        run.reply_to,
        run.progress,
        run.traceparent,
        _json(run.parent),
        _json(_run_facts(run)),
        _json([tuple(piece) for piece in run.critical_path]) if run.critical_path else None,
        parked_until_ms,
        _json(run.labels) if first else None,
    )


def step_row(run_id: str, step: Step) -> Row:
    """Return a step's row."""
    return (
        run_id,
        step.key,
        step.path,
        step.type,
        step.role.value,
        step.parent,
        step.state.value,
        step.attempt,
        _json(step.input),
        _json(step.output),
        _json(step.error),
        step.ready_at_ms,
        step.dispatched_at_ms,
        step.started_at_ms,
        step.finished_at_ms,
        step.deadline_at_ms,
        step.slack_ms,
        step.wake_at_ms,
        step.worker,
        _json(_step_facts(step)),
        step.queued_at_ms,
        step.took_ms,
    )


def attempt_row(run_id: str, attempt: RecordAttempt) -> Row:
    """Return the row of an attempt that did not give its step the result."""
    return (
        run_id,
        attempt.key,
        attempt.attempt,
        attempt.outcome,
        _json(attempt.error),
        attempt.dispatched_at_ms,
        attempt.started_at_ms,
        attempt.finished_at_ms,
        attempt.worker,
    )


def run_of(row: Mapping[str, Any]) -> Run:
    """Return the run of a row, without steps (enough for a run that has ended)."""
    facts = _parsed(row["facts"]) or {}
    error, parent = _parsed(row["error"]), _parsed(row["parent"])
    early = [AttemptFinished.model_validate(event) for event in facts.get("early", ())]
    return Run(
        run_id=row["run_id"],
        tenant=row["tenant"],
        pipeline=row["pipeline"],
        version=row["version"],
        partition=row["partition"],
        priority=Priority(row["priority"]),
        input=_parsed(row["input"]),
        accepted_at_ms=row["accepted_at"],
        deadline_at_ms=row["deadline_at"],
        status=RunStatus(row["status"]),
        output=_parsed(row["output"]),
        error=None if error is None else ErrorInfo.model_validate(error),
        finished_at_ms=row["finished_at"],
        budget_usd=row["budget_usd"],
        spent_usd=Decimal(row["spent_usd"]),
        degraded=row["degraded"],
        idempotency_key=row["idempotency_key"],
        reply_to=row["reply_to"],
        progress=row["progress"],
        traceparent=row["traceparent"],
        parent=None if parent is None else RunParent.model_validate(parent),
        origin=None if "origin" not in facts else RunOrigin.model_validate(facts["origin"]),
        labels=_parsed(row["labels"]),
        probe=facts.get("probe", False),
        paused_at_ms=facts.get("paused_at_ms"),
        signals=tuple(Signal(**signal) for signal in facts.get("signals", ())),
        seen_signals=tuple(facts.get("seen_signals", ())),
        early=Map({(event.step, event.attempt): event for event in early}),
        operations=facts.get("operations", 0),
        critical_path=tuple(Segment(*piece) for piece in _parsed(row["critical_path"]) or ()),
    )


def step_of(row: Mapping[str, Any]) -> Step:
    """Return the step of a row."""
    facts = _parsed(row["facts"]) or {}
    error = _parsed(row["error"])
    return Step(
        key=row["key"],
        path=row["path"],
        type=row["type"],
        role=Role(row["role"]),
        link=ParentRelation(facts.get("link", ParentRelation.NODE)),
        parent=row["parent"],
        ready_at_ms=row["ready_at"],
        state=StepState(row["state"]),
        home=facts.get("home", ""),
        index=facts.get("index", 0),
        attempt=row["attempt"],
        input=_parsed(row["input"]),
        output=_parsed(row["output"]),
        error=None if error is None else ErrorInfo.model_validate(error),
        dispatched_at_ms=row["dispatched_at"],
        started_at_ms=row["started_at"],
        finished_at_ms=row["finished_at"],
        deadline_at_ms=row["deadline_at"],
        slack_ms=row["slack_ms"],
        wake_at_ms=row["wake_at"],
        worker=row["worker"],
        degraded=facts.get("degraded", False),
        give_up_at_ms=facts.get("give_up_at_ms"),
        emitted=facts.get("emitted"),
        winner=facts.get("winner", ""),
        cache_key=facts.get("cache_key"),
        source=_source(facts.get("source")),
        counted=tuple((a, d, Decimal(cost)) for a, d, cost in facts.get("counted", ())),
        queued_at_ms=row["queued_at"],
        took_ms=row["took_ms"],
        timing=_timing(facts.get("timing")),
        tries=tuple(_try(one) for one in facts.get("tries", ())),
        capable=facts.get("capable", False),
    )


def restore(run: Run, steps: list[Step], plan: Plan) -> Run:
    """Return a run in flight with its steps and everything that is derived from them."""
    by_key = {step.key: step for step in steps}
    emitted = _emitted(steps, plan)
    children: dict[str, list[Step]] = {}
    for step in steps:
        children.setdefault(step.parent, []).append(step)

    def node_plan(step: Step) -> NodePlan:
        return emitted[step.home].by_path[step.path] if step.home else plan.by_path[step.path]

    scopes: dict[str, Scope] = {}
    tallies: dict[str, ChildProgress] = {}
    if not run.ended:
        scopes[""] = _scope(plan.root, children.get("", []))
    for step in steps:
        if step.state is not StepState.OPEN:
            continue
        below = children.get(step.key, [])
        fallbacks = [child for child in below if child.link is ParentRelation.FALLBACK]
        if fallbacks:
            tallies[step.key] = ChildProgress(max(child.index for child in fallbacks), 1)
        elif step.key in emitted:
            scopes[step.key] = _scope(emitted[step.key].scope, below)
        elif step.role is Role.GRAPH:
            body = node_plan(step).body
            assert body is not None, step.key
            scopes[step.key] = _scope(body, below)
        else:
            tallies[step.key] = _tally(step, below)
    live = [step for step in steps if step.state not in TERMINAL]
    due: Heap = None
    waiting: dict[str, Heap] = {}
    pausing = 0
    for step in live:
        if (wake_at_ms := wake_of(step)) is not None:
            due = push(due, (wake_at_ms, step.key))
        if step.state is StepState.WAITING:
            pausing += pauses(node_plan(step))
            for name in answers_to(node_plan(step), step.key):
                waiting[name] = push(waiting.get(name), step.key)
    return replace(
        run,
        steps=Map(by_key),
        scopes=Map(scopes),
        tallies=Map(tallies),
        live=Map({step.key: None for step in live}),
        wakes=Map({s.key: at_ms for s in live if (at_ms := wake_of(s)) is not None}),
        emitted=Map(emitted),
        due=due,
        waiting=Map(waiting),
        pausing=pausing,
        size_bytes=run_size(run, steps),
    )


def _emitted(steps: list[Step], plan: Plan) -> dict[str, Emitted]:
    """Compile again what planners emitted, outer planners first."""
    found: dict[str, Emitted] = {}
    degrades = plan.pipeline.on_infeasible == "degrade"
    for step in sorted((s for s in steps if s.emitted is not None), key=lambda s: len(s.key)):
        by_path = found[step.home].by_path if step.home else plan.by_path
        node = by_path[step.path].node
        assert isinstance(node, PlanningNode)
        assert node.emit is not None
        scope, by_path_inside = compile_emitted(
            step.emitted, node.emit, path=step.path, applied=True
        )
        outlook = emitted_outlook(scope, degrades=degrades)
        found[step.key] = Emitted(scope, by_path_inside, outlook, node.emit)
    return with_counts(found, {step.key: step for step in steps})


def _scope(plan: ScopePlan, steps: list[Step]) -> Scope:
    prefix = f"{plan.path}/" if plan.path else ""
    done = {
        step.path.removeprefix(prefix)
        for step in steps
        if step.link is ParentRelation.NODE and step.state in TERMINAL
    }
    pending = {
        node.name: sum(1 for need in node.needs if need not in done)
        for node in plan.nodes.values()
        if node.needs
    }
    return Scope(Map(pending), len(plan.nodes) - len(done))


def _tally(step: Step, children: list[Step]) -> ChildProgress:
    running = sum(1 for child in children if child.state not in TERMINAL)
    if step.role is Role.LOOP:
        return ChildProgress(max(child.index for child in children), 1)
    return ChildProgress(len(children), running)


def _run_facts(run: Run) -> dict[str, Any] | None:
    facts: dict[str, Any] = {}
    if run.probe:
        facts["probe"] = True
    if run.paused_at_ms is not None:
        facts["paused_at_ms"] = run.paused_at_ms
    if run.signals:
        facts["signals"] = [
            {"signal_id": s.signal_id, "name": s.name, "payload": s.payload, "by": s.by}
            for s in run.signals
        ]
    if run.seen_signals:
        facts["seen_signals"] = list(run.seen_signals)
    if run.origin is not None:
        facts["origin"] = run.origin
    if run.operations:
        facts["operations"] = run.operations
    if run.early:
        facts["early"] = list(run.early.values())
    return facts or None


def _step_facts(step: Step) -> dict[str, Any] | None:
    facts: dict[str, Any] = {}
    if step.link is not ParentRelation.NODE:
        facts["link"] = step.link.value
        facts["index"] = step.index
    if step.home:
        facts["home"] = step.home
    if step.degraded:
        facts["degraded"] = True
    if step.give_up_at_ms is not None:
        facts["give_up_at_ms"] = step.give_up_at_ms
    if step.emitted is not None:
        facts["emitted"] = step.emitted
    if step.winner:
        facts["winner"] = step.winner
    if step.cache_key is not None:
        facts["cache_key"] = step.cache_key
    if step.source is not None:
        facts["source"] = _source_facts(step.source)
    if step.counted:
        facts["counted"] = step.counted
    if step.timing is not None:
        facts["timing"] = step.timing.model_dump(exclude_defaults=True)
    if step.capable and step.state not in TERMINAL:
        facts["capable"] = True
    if step.tries:
        facts["tries"] = [_try_facts(one) for one in step.tries]
    return facts or None


def _try_facts(one: PastAttempt) -> dict[str, Any]:
    facts = {name: value for name in _TRY_TIMES if (value := getattr(one, name)) is not None}
    if one.timing is not None:
        facts["timing"] = one.timing.model_dump(exclude_defaults=True)
    return facts


def _try(facts: dict[str, Any]) -> PastAttempt:
    return PastAttempt(**{**facts, "timing": _timing(facts.get("timing"))})


def _timing(facts: dict[str, float] | None) -> Timing | None:
    return None if facts is None else Timing(**facts)


_TRY_TIMES = ("dispatched_at_ms", "finished_at_ms", "queued_at_ms", "started_at_ms", "took_ms")


def _source(facts: dict[str, Any] | None) -> Source | None:
    if facts is None:
        return None
    return Source(facts["kind"], facts["run_id"], facts["step"], Decimal(facts.get("saved_usd", 0)))


def _source_facts(source: Source) -> dict[str, Any]:
    facts = asdict(source)
    if source.kind != "cache":
        del facts["saved_usd"]  # the ledger knows what it cost there
    return facts


def _json(value: Any) -> str | None:
    if value is None:
        return None
    text = to_json(value, inf_nan_mode="null").decode()
    # Postgres' jsonb has no NUL; a model's output may
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return from_json(text)
    except ValueError:  # it nests deeper than that parser goes, and Postgres and Python go
        return json.loads(text)
