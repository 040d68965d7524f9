"""What a core did, as plain values that can be compared: messages, rows, and what is derived from them.

Each view is made from the old core's objects by one function and from the new core's by another.
"""

from collections.abc import Collection
from typing import Any

from pydantic_core import from_json, to_json

from hocket.coordinator.core.machine.state import messages, rows
from hocket.coordinator.core.machine.state.run import Run as Machine
from hocket.coordinator.core.machine.transition import Outcome
from hocket.coordinator.core.rows.records import (
    RUN_COLUMNS,
    STEP_COLUMNS,
    attempt_row,
    run_row,
    step_row,
)
from hocket.coordinator.core.run import commands
from hocket.coordinator.core.run.decide import Decision
from hocket.coordinator.core.run.state import Run
from hocket.coordinator.core.time.deadlines import lane_of
from hocket.schemas import ids, subjects
from hocket.schemas.messages import Message, encoded

View = dict[str, Any]
HELD = ((0.0, 0.0), (-1_234.5, 17.25))
"""How long a message is held back (ms), and by how much its slack is another then."""


def orders_of(outcome: Decision | Outcome) -> list[View]:
    """Return what the shell is asked to do, in order."""
    found = outcome.commands if isinstance(outcome, Decision) else outcome.orders
    run = outcome.run
    return [_order(one, run) for one in found]


def _order(one: Any, run: Run | Machine) -> View:
    kind = type(one).__name__
    if isinstance(one, commands.Dispatch):
        return _old_dispatch(one)
    if isinstance(one, messages.Dispatch):
        return _new_dispatch(one)
    if isinstance(one, commands.EndRun):
        return {"order": kind, "body": _sent(lambda: encoded(one.finished))}
    if isinstance(one, messages.EndRun):
        return {"order": kind, "body": _sent(one.body)}
    if isinstance(one, commands.StartSubRun):
        parent = one.accepted.parent
        assert parent is not None
        msg_id = ids.accepted_id(one.accepted.run_id, parent.dispatched_at_ms)
        return {"order": kind, "msg_id": msg_id, "body": _sent(lambda: encoded(one.accepted))}
    if isinstance(one, commands.RecordAttempt):
        return {"order": kind, "row": attempt_row(run.run_id, one)}
    fields = {name: _plain(getattr(one, name)) for name in type(one).__slots__}
    return {"order": kind, **fields}


def _old_dispatch(one: commands.Dispatch) -> View:
    request = one.request
    attempt_id = ids.attempt_id(request.run_id, request.step, request.attempt)
    sent = []
    for more_ms, held_ms in HELD:
        slack_ms = request.slack_ms + more_ms
        held = request.model_copy(update={"slack_ms": slack_ms, "held_ms": held_ms})
        subject = subjects.step(
            subjects.pool(request.type, request.queue), lane_of(request.priority, slack_ms)
        )
        sent.append({"subject": subject, "body": _sent(lambda held=held: encoded(held))})
    return {
        "order": "Dispatch",
        "attempt_id": attempt_id,
        "msg_id": ids.capable(
            ids.dispatch_id(attempt_id, request.dispatched_at_ms), request.capability
        ),
        "traceparent": one.traceparent,
        "sent": sent,
        "latest_start_at_ms": one.latest_start_at_ms,
        "latest_feasible_start_at_ms": one.latest_feasible_start_at_ms,
        "expected_ms": one.expected_ms,
        "join_left": one.join_left,
        "again": one.again,
        "is_external": request.effects_external,
        "start_by_at_ms": request.start_by_at_ms,
    }


def _new_dispatch(one: messages.Dispatch) -> View:
    sent = []
    for more_ms, held_ms in HELD:
        slack_ms = one.slack_ms + more_ms
        subject = subjects.step(one.pool, lane_of(one.run.priority, slack_ms))
        body = _sent(lambda slack_ms=slack_ms, held_ms=held_ms: one.body(slack_ms, held_ms))
        if isinstance(body, dict):
            body = {**_LEFT_OUT, **body}
        sent.append({"subject": subject, "body": body})
    return {
        "order": "Dispatch",
        "attempt_id": one.attempt_id,
        "msg_id": one.msg_id,
        "traceparent": one.run.traceparent,
        "sent": sent,
        "latest_start_at_ms": one.latest_start_at_ms,
        "latest_feasible_start_at_ms": one.latest_feasible_start_at_ms,
        "expected_ms": one.expected_ms,
        "join_left": one.join_left,
        "again": one.again,
        "is_external": one.is_external,
        "start_by_at_ms": one.start_by_at_ms,
    }


_LEFT_OUT = dict.fromkeys(
    ("budget_usd", "budget_left_usd", "start_by_at_ms", "capability", "queue", "labels")
)
"""Fields of a request that are left out where they say nothing: their default is null."""


def _sent(body: Any) -> Any:
    """Return a message as it is read, or that it cannot be sent."""
    try:
        return from_json(body())
    except ValueError as error:
        return f"not sendable: {type(error).__name__}"


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return from_json(encoded(value))
    return value


def run_view(run: Run | Machine) -> View:
    """Return a run's own row by column."""
    values = run_row(run) if isinstance(run, Run) else rows.run_row(run)
    view = _columns(RUN_COLUMNS, values)
    if view["facts"] and "early" in view["facts"]:  # a set, whatever its order
        view["facts"]["early"].sort(key=lambda event: (event["step"], event["attempt"]))
    return view


def step_views(run: Run | Machine, keys: Collection[str] | None = None) -> dict[str, View]:
    """Return the rows of steps by key: of all, or of some."""
    found = {}
    for key in run.steps if keys is None else keys:
        step = run.steps.get(key)
        if step is not None:
            row = step_row if isinstance(run, Run) else rows.step_row
            found[key] = row(run.run_id, step)
    return {key: _columns(STEP_COLUMNS, values) for key, values in sorted(found.items())}


def _columns(columns: Any, values: Any) -> View:
    found = dict(zip(columns, values, strict=True))
    for name, kind in columns.items():
        if kind == "jsonb" and found[name] is not None:
            found[name] = from_json(found[name])
    return found


def derived_view(run: Run | Machine) -> View:
    """Return what is worked out of the rows, and what must be known besides."""
    if isinstance(run, Run):
        return {
            "size_bytes": 0 if run.ended else run.size_bytes,
            "live": sorted(run.live) if not run.ended else [],
            "due": {k: run.wakes[k] for k in sorted(run.wakes)} if not run.ended else {},
            "pausing": run.pausing if not run.ended else 0,
            "early": sorted(run.early),
            "emitted": {
                key: (one.begun, one.spent_usd) for key, one in sorted(run.emitted.items())
            },
        }
    emitted = [step for step in run.steps.values() if step.emitted is not None]
    return {
        "size_bytes": 0 if run.has_ended else run.size_bytes,
        "live": sorted(run.live),
        "due": {
            key: run.live[key].due_at_ms
            for key in sorted(run.live)
            if run.live[key].due_at_ms is not None
        },
        "pausing": run.pausing if not run.has_ended else 0,
        "early": sorted(run.early),
        "emitted": {
            step.key: (step.emitted.begun, step.emitted.spent_usd)
            for step in sorted(emitted, key=lambda step: step.key)
            if step.emitted is not None
        },
    }


def stored(run: Run) -> tuple[View, list[View]]:
    """Return the rows of a run as the database has them."""
    row = dict(zip(RUN_COLUMNS, run_row(run), strict=True))
    steps = [
        dict(zip(STEP_COLUMNS, step_row(run.run_id, step), strict=True))
        for step in run.steps.values()
    ]
    return row, steps


def stored_machine(run: Machine) -> tuple[View, list[View]]:
    """Return the rows of the new core's run as the database has them."""
    row = dict(zip(RUN_COLUMNS, rows.run_row(run), strict=True))
    steps = [
        dict(zip(STEP_COLUMNS, rows.step_row(run.run_id, step), strict=True))
        for step in run.steps.values()
    ]
    return row, steps


def first_difference(old: Any, new: Any, place: str = "") -> tuple[str, Any, Any] | None:
    """Return where two views differ first, and what each has there."""
    if old == new and isinstance(old, bool) == isinstance(new, bool):
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}, key=str):
            if name not in old or name not in new:
                return f"{place}.{name}", old.get(name, "(nothing)"), new.get(name, "(nothing)")
            found = first_difference(old[name], new[name], f"{place}.{name}")
            if found is not None:
                return found
        return None
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            found = first_difference(one, other, f"{place}[{number}]")
            if found is not None:
                return found
        if len(old) != len(new):
            number = min(len(old), len(new))
            longer = old if len(old) > len(new) else new
            extra = longer[number]
            if len(old) > len(new):
                return f"{place}[{number}]", extra, "(nothing)"
            return f"{place}[{number}]", "(nothing)", extra
        return None
    return place, old, new


def told(value: Any, limit: int = 300) -> str:
    """Return a value for a report."""
    text = to_json(value, fallback=str).decode() if not isinstance(value, str) else value
    return text if len(text) <= limit else text[:limit] + "…"
