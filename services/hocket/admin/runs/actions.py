"""Requests that change a run: each is one message in the log of the run's partition."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import asyncpg
from pydantic_core import to_json

from hocket.admin.context import Context
from hocket.admin.pipelines.awaited_names import in_order
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.errors import (
    ApprovalDecided,
    RunNotOpen,
    SignalsNotRead,
    SignalUnknown,
)
from hocket.admin.requests.identity import Caller
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import (
    MAX_SIGNALS_BYTES,
    MAX_UNREAD_SIGNALS,
    CancelRequested,
    SignalReceived,
)
from hocket.schemas.rest import CancelBody, Sent, SignalBody

PUBLISH_TIMEOUT_MS = 10_000
SIGNALS = """
SELECT coalesce(jsonb_array_length(facts -> 'signals'), 0) AS unread,
       coalesce(octet_length((facts -> 'signals')::text), 0) AS unread_bytes,
       coalesce(facts -> 'seen_signals' ? $2, false)
       OR coalesce(jsonb_path_exists(facts, '$.signals[*] ? (@.signal_id == $id)',
                                     jsonb_build_object('id', $2::text)), false) AS is_known,
       awaited.*,
       (
           SELECT s.state FROM hocket.step s
           WHERE s.run_id = r.run_id AND s.key = $3 AND s.type = 'approval' AND s.finished_at IS NOT NULL
       ) AS over,
       NOT awaited.is_awaited AND EXISTS (
           SELECT FROM hocket.step s
           WHERE s.run_id = r.run_id AND s.type = 'approval' AND s.finished_at IS NOT NULL
             AND s.state <> 'skipped' AND regexp_replace(s.path, '^.*[/~]', '') = $3
       ) AS was_asked
FROM hocket.run r
CROSS JOIN LATERAL (
    SELECT count(*) > 0 AS is_awaited,
           count(*) FILTER (WHERE is_named AND type = 'approval') AS approvals,
           min(key) FILTER (WHERE is_named AND type = 'approval') AS approval,
           coalesce(bool_or(is_named AND (key = $3 OR type <> 'approval')), false) AS is_exact
    FROM (
        SELECT s.key, s.type, coalesce(s.facts -> 'waits_for' ? $3, false) AS is_named
        FROM hocket.step s
        WHERE s.run_id = r.run_id AND s.state = 'waiting' AND coalesce(s.facts -> 'waits_for' ? $3, true)
    ) waiting
) awaited
WHERE r.run_id = $1
"""
"""A run's signals that no step has read; whether a step waits for this one, how many approvals do, and
the key of the only one; whether the name is such a step's key, or that of a signal; the state of the
approval with this key if it is over; and, if no step waits, whether an approval of a node with this name
was decided. Waiting steps of an earlier release do not say what they wait for."""


WAITING = """
SELECT name, count(*) OVER () AS every
FROM (
    SELECT DISTINCT jsonb_array_elements_text(facts -> 'waits_for') AS name
    FROM hocket.step
    WHERE run_id = $1 AND state = 'waiting' AND facts ? 'waits_for'
) waiting
ORDER BY name LIMIT $2
"""
"""What steps of a run wait for, and how many names that are."""
NAMES_TOLD = 20


def check_open(run: asyncpg.Record) -> None:
    """Raise RunNotOpen if a run has ended."""
    if run["finished_at"] is not None:
        raise RunNotOpen(run_id=run["run_id"], status=run["status"])


async def cancel(context: Context, caller: Caller, run: asyncpg.Record, body: CancelBody) -> Sent:
    """Ask the run's coordinator to cancel it; raises RunNotOpen if it has ended."""
    check_open(run)
    event = CancelRequested(run_id=run["run_id"], reason=body.reason, by=caller.name)
    return await _send(context, run, event, msg_id=f"{run['run_id']}:cancel:{uuid4().hex}")


async def cancel_all(
    context: Context, caller: Caller, runs: Sequence[asyncpg.Record], reason: str
) -> None:
    """Ask a partition's coordinator to cancel open runs, in a single message; raises RunNotOpen if the
    first has ended."""
    check_open(runs[0])
    first, *others = [run["run_id"] for run in runs]
    event = CancelRequested(run_id=first, reason=reason, by=caller.name, others=tuple(others))
    await _send(context, runs[0], event, msg_id=f"{first}:cancel:{uuid4().hex}")


async def checked_signal(
    context: Context, caller: Caller, run: asyncpg.Record, body: SignalBody
) -> SignalReceived:
    """Return a signal as it is sent to the run; raises RunNotOpen if the run has ended, ApprovalDecided
    if it answers an approval too late, SignalsNotRead if too many signals are unread, and SignalUnknown
    if no step can wait for it. A signal that the run has received is none of these: it can be sent
    again, and changes nothing."""
    signal_id = body.signal_id or uuid4().hex
    found = await context.pool.fetchrow(
        SIGNALS, run["run_id"], signal_id, body.name, timeout=QUERY_TIMEOUT_S
    )
    name = body.name
    if found is None or not found["is_known"]:
        name = name if found is None else _meant(run["run_id"], found, body)
        check_open(run)
        if found is not None and not found["is_awaited"]:
            await _check_known(context, caller.tenant, run, name)
    return SignalReceived(
        run_id=run["run_id"],
        signal_id=signal_id,
        name=name,
        payload=body.payload,
        by=caller.name,
    )


async def send_signal(context: Context, run: asyncpg.Record, event: SignalReceived) -> Sent:
    """Send a signal to the run."""
    accepted_at = run["accepted_at"].isoformat()  # the id of a deleted run may be used again
    msg_id = f"{run['run_id']}:signal:{event.signal_id}:{accepted_at}"
    return await _send(context, run, event, msg_id=msg_id)


def _meant(run_id: str, found: asyncpg.Record, body: SignalBody) -> str:
    """Return the name under which a new signal is sent: of an answer by the name of a node, the key of
    the only step that waits, so that it can never answer a later approval of that name, which nobody has
    seen. Where several wait, the coordinator chooses.

    Raises ApprovalDecided for a late answer, and SignalsNotRead if too many signals are stored already:
    beyond the limit, the run would fail.
    """
    if found["is_exact"]:
        return body.name
    if found["approvals"] and found["over"] not in (None, "skipped"):
        raise ApprovalDecided(run_id=run_id, name=body.name)
    if found["is_awaited"]:
        return str(found["approval"]) if found["approvals"] == 1 else body.name
    if found["over"] is not None or (found["was_asked"] and _is_answer(body.payload)):
        raise ApprovalDecided(run_id=run_id, name=body.name)
    _check_unread(run_id, found, body)
    return body.name


async def _check_known(context: Context, tenant: str, run: asyncpg.Record, name: str) -> None:
    """Raise SignalUnknown if no step of the run, whose pipeline may be deleted, can wait for a name."""
    try:
        awaited = await context.plans.awaited_by(
            context.pool, tenant, run["pipeline"], run["version"]
        )
    except HocketError:
        return
    if awaited.has(name):
        return
    rows = await context.pool.fetch(WAITING, run["run_id"], NAMES_TOLD, timeout=QUERY_TIMEOUT_S)
    raise SignalUnknown(
        run_id=run["run_id"],
        name=name,
        known=_listed(in_order(awaited.names or ()), len(awaited.names or ())),
        waiting=_listed([row["name"] for row in rows], rows[0]["every"] if rows else 0),
    )


def _listed(names: Sequence[str], every: int) -> str:
    """Return some names, and how many there are beside them."""
    told = ", ".join(f"`{name}`" for name in names[:NAMES_TOLD]) or "nothing"
    return f"{told} and {every - NAMES_TOLD:,} more" if every > NAMES_TOLD else told


def _is_answer(payload: Any) -> bool:
    """Whether a payload answers an approval. Another may be for a signal of that name that a handler or
    a planner will name."""
    return isinstance(payload, Mapping) and "approved" in payload


def _check_unread(run_id: str, found: asyncpg.Record, body: SignalBody) -> None:
    size_bytes = found["unread_bytes"] + len(to_json(body.payload))
    if found["unread"] >= MAX_UNREAD_SIGNALS or size_bytes > MAX_SIGNALS_BYTES:
        raise SignalsNotRead(
            run_id=run_id,
            name=body.name,
            count=found["unread"],
            limit=MAX_UNREAD_SIGNALS,
            size_bytes=size_bytes,
            limit_bytes=MAX_SIGNALS_BYTES,
        )


async def _send(
    context: Context, run: asyncpg.Record, event: CancelRequested | SignalReceived, *, msg_id: str
) -> Sent:
    body, seals = event.model_dump_json().encode(), context.capabilities
    ack = await context.bus.publish(
        subjects.log(run["partition"], event.kind),
        body,
        msg_id=msg_id if seals is None else seals.id_of(msg_id),
        headers=None if seals is None else {SEAL: seals.seal(event.kind, body)},
        timeout_ms=PUBLISH_TIMEOUT_MS,
    )
    return Sent(run_id=run["run_id"], log_seq=ack.seq)
