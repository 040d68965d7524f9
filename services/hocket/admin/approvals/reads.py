"""Approvals that runs wait for."""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from hocket.admin.approvals import emitted
from hocket.admin.context import Context
from hocket.admin.pages import EPOCH, MAX_CURSOR_CHARS, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.schemas import ids
from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline.spec import ApprovalNode

DEFAULT_WAITING = 200
"""Approvals on a page."""
MAX_PLACE_CHARS = MAX_CURSOR_CHARS + len("r:") + ids.RUN_ID_HEX
"""The longest cursor: time, run and step."""
MAX_SHOWN_CHARS = 2_000
"""The limit on what is shown of an approval's input; a longer one ends with `…`."""

WAITING = """
SELECT s.run_id, s.key, s.path, s.facts ->> 'home' AS home, s.ready_at, r.pipeline, r.version,
       r.accepted_at, r.deadline_at,
       CASE WHEN $3 THEN (
           SELECT CASE WHEN length(whole) > $5 THEN left(whole, $5) || '…' ELSE whole END
           FROM (SELECT coalesce(s.input, r.input)::text AS whole) given
       ) END AS input
FROM hocket.run r
JOIN hocket.step s ON s.run_id = r.run_id
WHERE r.tenant = $1 AND r.finished_at IS NULL AND s.state = 'waiting' AND s.type = 'approval'
  AND ($4::text IS NULL OR r.run_id = $4) AND ($6::text IS NULL OR r.pipeline = $6)
  AND (s.ready_at, s.run_id, s.key) > ($7, $8, $9)
ORDER BY s.ready_at, s.run_id, s.key
LIMIT $2
"""
"""The pending approvals of open runs after a place, longest-waiting first, with what they are about."""

ONE_WAITING = """
SELECT s.run_id, s.path, s.facts ->> 'home' AS home, r.pipeline, r.version
FROM hocket.run r
JOIN hocket.step s ON s.run_id = r.run_id
WHERE r.tenant = $1 AND r.run_id = $2 AND s.key = $3 AND r.finished_at IS NULL
  AND s.state = 'waiting' AND s.type = 'approval'
"""
"""One of them, as far as its question needs it."""


@dataclass(frozen=True, slots=True)
class WaitingFilter:
    """Which approvals to return: of a run, of a pipeline; of all by default."""

    run_id: str | None = None
    pipeline: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """An approval that a run is waiting for."""

    run_id: str
    step: str
    pipeline: str
    version: int
    since: datetime
    prompt: str
    input: str | None


async def waiting(
    context: Context,
    tenant: str,
    wanted: WaitingFilter,
    *,
    content: bool,
    after: str | None,
    limit: int,
) -> tuple[list[Waiting], str | None]:
    """Return a page of a tenant's approvals, longest-waiting first, and the cursor of the next one (None
    on the last); each includes the beginning of what it is about if the reader may see content. Raises
    InvalidInput."""
    start = (EPOCH, "", "") if after is None else _place(after)
    async with context.long_reads.place(tenant):
        found = await context.pool.fetch(
            WAITING,
            tenant,
            limit + 1,
            content,
            wanted.run_id,
            MAX_SHOWN_CHARS,
            wanted.pipeline,
            *start,
            timeout=QUERY_TIMEOUT_S,
        )
        rows = found[:limit]
        prompts = [await _prompt(context, tenant, row, content=content) for row in rows]
    last = rows[-1] if len(found) > limit else None
    more = None if last is None else cursor(last["ready_at"], f"{last['run_id']}:{last['key']}")
    return [
        Waiting(
            run_id=row["run_id"],
            step=row["key"],
            pipeline=row["pipeline"],
            version=row["version"],
            since=row["ready_at"],
            prompt=prompt,
            input=row["input"],
        )
        for row, prompt in zip(rows, prompts, strict=True)
    ], more


async def prompt_of_step(
    context: Context, tenant: str, run_id: str, step: str, *, content: bool
) -> str | None:
    """Return the question that a step puts to a person, as `waiting` does; None if it puts none any
    more."""
    row = await context.pool.fetchrow(ONE_WAITING, tenant, run_id, step, timeout=QUERY_TIMEOUT_S)
    return None if row is None else await _prompt(context, tenant, row, content=content)


def _place(after: str) -> tuple[datetime, str, str]:
    """Return the time, the run and the step of a cursor, or raise InvalidInput."""
    since, place = parse_cursor(after)
    run_id, _, step = place.partition(":")
    return since, run_id, step


async def _prompt(context: Context, tenant: str, row: asyncpg.Record, *, content: bool) -> str:
    """Return the question put to the person; empty if the pipeline cannot be read."""
    pipeline, version, path, home = row["pipeline"], row["version"], row["path"], row["home"]
    try:
        _, plan = await context.plans.plan_of(context.pool, tenant, pipeline, version)
    except HocketError:
        return ""
    if home is not None:
        return await emitted.prompt_of(
            context.pool, plan, row["run_id"], home, path, content=content
        )
    node = plan.by_path.get(path)
    return node.node.prompt if node and isinstance(node.node, ApprovalNode) else ""
