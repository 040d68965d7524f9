"""A run and its steps as rows (the columns are in `columns.py`): JSON columns hold text, times are
epoch milliseconds."""

from dataclasses import asdict
from typing import Any

from hocket.coordinator.core.run.commands import WaitForFlow
from hocket.coordinator.core.run.state.columns import Row, in_row, json_column
from hocket.coordinator.core.run.state.run import (
    NODE,
    TERMINAL,
    WAITING,
    PastAttempt,
    Run,
    Source,
    Step,
    calls_awaited,
    is_suspended,
    signals_awaited,
    waits_until_ms,
)
from hocket.coordinator.core.run.state.values import NULL, Json

_CAPABLE = json_column({"capable": True})
"""The facts of most steps in flight."""


def run_row(run: Run, *, first: bool = True, parked_until_ms: float | None = None) -> Row:
    """Return a run's own row; input and labels, which never change, only if it is the `first`.
    `parked_until_ms`: until when it need not be in memory (`parking.py`)."""
    return (
        run.run_id,
        run.owner.partition,
        run.tenant,
        run.pipeline,
        run.version,
        run.status,
        run.priority.value,
        _stored(run.input) if first else "{}",
        _stored(run.output),
        json_column(run.error),
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
        json_column(run.parent),
        json_column(_run_facts(run)),
        json_column(run.critical_path) if run.critical_path else None,
        parked_until_ms,
        json_column(run.labels) if first else None,
    )


def step_row(run_id: str, step: Step) -> Row:
    """Return a step's row, without values that are no longer in memory (`KEPT_COLUMNS`)."""
    node = step.node
    return (
        run_id,
        step.key,
        node.path,
        node.type,
        step.role,
        "" if step.parent is None else step.parent.key,
        step.state,
        step.attempt,
        _stored(step.input),
        _stored(step.output),
        None if step.error is None else json_column(step.error),
        step.ready_at_ms,
        step.dispatched_at_ms,
        step.started_at_ms,
        step.finished_at_ms,
        step.deadline_at_ms,
        step.slack_ms,
        step.wake_at_ms,
        step.worker,
        _facts_column(step),
        step.queued_at_ms,
        step.took_ms,
    )


def spending_row(run: Run, step: Step) -> Row:
    """Return what changes in the rows of an ended run and of a step, of which more was spent."""
    return run.run_id, step.key, run.spent_usd, json_column(_spending_facts(step)), None


def charges_row(run: Run) -> Row:
    """Return what changes in the row of an ended run for which more was spent beside its steps."""
    return run.run_id, "", run.spent_usd, "{}", json_column(_charges_facts(run))


def flow_rows(run: Run, waits: WaitForFlow) -> list[Row]:
    """Return the rows of the places where a run waits to start, in the order in which it passes them."""
    last = len(waits.places) - 1
    return [
        (
            run.run_id,
            gate,
            run.tenant,
            run.pipeline,
            place.kind,
            place.key,
            json_column(place.rule),
            run.accepted_at_ms,
            gate == last,
        )
        for gate, place in enumerate(waits.places)
    ]


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
    facts |= _charges_facts(run)
    if run.early:
        facts["early"] = list(run.early.values())
    return facts or None


def _charges_facts(run: Run) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if run.charges:
        facts["charges"] = [[source, str(usd)] for source, usd in run.charges.items()]
    if run.untold:
        facts["untold"] = [[source, str(usd)] for source, usd in run.untold.items()]
    return facts


def _facts_column(step: Step) -> str | None:
    facts = _step_facts(step)
    if facts is None:
        return None
    return _CAPABLE if facts == {"capable": True} else json_column(facts)


def _step_facts(step: Step) -> dict[str, Any] | None:
    facts: dict[str, Any] = {}
    if step.link != NODE:
        facts["link"] = step.link
        facts["index"] = step.index
    if step.home is not None:
        facts["home"] = step.home.key
    if step.degraded:
        facts["degraded"] = True
    if step.give_up_at_ms is not None:
        facts["give_up_at_ms"] = step.give_up_at_ms
    if step.emitted is not None:
        facts["emitted"] = step.emitted.value.value
    if step.winner:
        facts["winner"] = step.winner
    if step.state == WAITING or is_suspended(step):
        facts["waits_for"] = signals_awaited(step)
        if calls := calls_awaited(step):
            facts["waits_for_steps"] = calls
        until_ms = waits_until_ms(step)
        if until_ms is not None:
            facts["waits_until_ms"] = until_ms
    _add_attempt_facts(facts, step)
    return facts or None


def _add_attempt_facts(facts: dict[str, Any], step: Step) -> None:
    if step.cache_key is not None:
        facts["cache_key"] = step.cache_key
    if step.source is not None:
        facts["source"] = _source_facts(step.source)
    facts |= _spending_facts(step)
    if step.timing is not None:
        facts["timing"] = step.timing.model_dump(exclude_defaults=True)
    if step.capable and step.state not in TERMINAL:
        facts["capable"] = True
    if step.suspensions:
        _add_suspension_facts(facts, step)
    if step.untried:
        facts["untried"] = step.untried
    if step.tries:
        facts["tries"] = [_try_facts(one) for one in step.tries]


def _spending_facts(step: Step) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if step.counted:
        facts["counted"] = step.counted
    if step.charged_usd:
        facts["charged_usd"] = str(step.charged_usd)
    return facts


def _add_suspension_facts(facts: dict[str, Any], step: Step) -> None:
    facts["suspensions"] = step.suspensions
    if step.state in TERMINAL:
        return
    if step.waits:
        facts["waits"] = [one.model_dump(exclude_defaults=True) for one in step.waits]
    if step.ended:
        facts["ended"] = [one.model_dump(exclude_defaults=True) for one in step.ended]


def _try_facts(one: PastAttempt) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "dispatched_at_ms": one.dispatched_at_ms,
        "finished_at_ms": one.finished_at_ms,
    }
    if one.queued_at_ms is not None:
        facts["queued_at_ms"] = one.queued_at_ms
    if one.started_at_ms is not None:
        facts["started_at_ms"] = one.started_at_ms
    if one.took_ms is not None:
        facts["took_ms"] = one.took_ms
    if one.timing is not None:
        facts["timing"] = one.timing.model_dump(exclude_defaults=True)
    if one.is_suspended:
        facts["is_suspended"] = True
    return facts


def _source_facts(source: Source) -> dict[str, Any]:
    facts = asdict(source)
    if source.kind != "cache":
        del facts["saved_usd"]  # the ledger knows what it cost there
    return facts


def _stored(value: Json) -> str | None:
    if value is NULL or value.is_null or value.is_in_row_only:
        return None
    return in_row(value.text)
