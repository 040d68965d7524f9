"""Calls as the ledger stores them: one row per attempt, with ids derived from the call's id.

The attempts of a call `c` are `c`, `c:r1`, `c:r2` ...; `c:t1` and so on if a gateway was killed in
between; `c:h`, `c:r1:h` ... for the second request of a hedge; `c#` and a hash if the id was already
used for another call or by another tenant.
"""

import json
from typing import Any

from hocket.admin.pages import EPOCH, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.postgres.lookups import OF_THIS_RUN
from hocket.schemas.ids import call_of
from hocket.schemas.rest import CallAttempt, CallExplained, CallList, OpenAttempt, RefusedCall

MAX_TURNS = 8
MAX_ATTEMPTS = 100
MAX_SHOWN = 1_000
"""Attempts in one answer."""

_COLUMNS = """call_id, kind, tenant, pipeline, run_id, node, step, attempt, model, backend, replica,
       status, error_code, input_tokens, output_tokens, cached_tokens, cost_usd, started_at, latency_ms,
       experiment, arm, decision"""

ATTEMPTS = f"""
SELECT {_COLUMNS}
FROM hocket.usage
WHERE tenant = $1 AND (call_id = ANY ((SELECT $2::text[])::text[])
                       OR call_id >= $3 || '#' AND call_id < $3 || '$')
ORDER BY started_at, call_id
LIMIT $4
"""
"""The attempts of one call, including those of later calls with the same id (`#`). The ids stand in a
query of their own: if the planner saw them, it would weigh each of them for each partition, for half a
second."""

OPEN = """
SELECT call_id, model, backend, replica, gateway, started_at, deadline_at
FROM hocket.open_call
WHERE tenant = $1 AND call_id = ANY ((SELECT $2::text[])::text[])
ORDER BY started_at
"""
"""The attempts of a call that are not booked yet, or never will be."""

REFUSED = """
SELECT call_id, model, error_code, reason, gateway, refused_at
FROM hocket.refused_call
WHERE tenant = $1 AND call_id = $2
"""
"""Why a call was sent to no backend."""

OF_RUN = f"""
SELECT {_COLUMNS}
FROM hocket.usage u
WHERE tenant = $1 AND run_id = $2 AND (started_at, call_id) > ($3, $4) AND {OF_THIS_RUN}
ORDER BY started_at, call_id
LIMIT $5
"""
"""The attempts of all calls of a run, but not those of a deleted run that had its id."""


async def explain(pool: Pool, tenant: str, call_id: str) -> CallExplained:
    """Return what is known of a call; an attempt's id selects the call it belongs to."""
    known = call_of(call_id)
    wanted = [call_id, *_ids(known)]
    attempts = await pool.fetch(ATTEMPTS, tenant, wanted, known, MAX_SHOWN, timeout=QUERY_TIMEOUT_S)
    still_open = await pool.fetch(OPEN, tenant, wanted, timeout=QUERY_TIMEOUT_S)
    refused = await pool.fetch(REFUSED, tenant, known, timeout=QUERY_TIMEOUT_S)
    return CallExplained(
        call_id=known,
        attempts=tuple(_attempt(row) for row in attempts),
        open=tuple(OpenAttempt(**dict(row)) for row in still_open),
        refused=RefusedCall(**dict(refused[0])) if refused else None,
    )


async def of_run(
    pool: Pool, tenant: str, run_id: str, limit: int, *, after: str | None = None
) -> CallList:
    """Return a page of the attempts of all calls of a run, the earliest first."""
    start = (EPOCH, "") if after is None else parse_cursor(after)
    rows = await pool.fetch(OF_RUN, tenant, run_id, *start, limit + 1, timeout=QUERY_TIMEOUT_S)
    page, there_is_more = rows[:limit], len(rows) > limit
    return CallList(
        calls=tuple(_attempt(row) for row in page),
        truncated=there_is_more,
        next=cursor(page[-1]["started_at"], page[-1]["call_id"]) if there_is_more else None,
    )


def _ids(call_id: str) -> list[str]:
    """Return the ids that attempts of a call can have."""
    turns = ["", *(f":t{turn}" for turn in range(1, MAX_TURNS + 1))]
    attempts = ["", *(f":r{attempt}" for attempt in range(1, MAX_ATTEMPTS + 1))]
    return [
        call_id + turn + attempt + hedge
        for turn in turns
        for attempt in attempts
        for hedge in ("", ":h")
    ]


def _attempt(row: Any) -> CallAttempt:
    fields = dict(row)
    decision = fields.pop("decision")
    return CallAttempt(**fields, decision=None if decision is None else json.loads(decision))
