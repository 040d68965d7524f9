"""Approvals that runs wait for."""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from hocket.admin.approvals import emitted
from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline.spec import ApprovalNode

MAX_WAITING = 200
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
  AND ($4::text IS NULL OR r.run_id = $4)
ORDER BY s.ready_at, s.run_id, s.key
LIMIT $2
"""
"""The pending approvals of open runs, longest-waiting first, with what they are about."""


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
    context: Context, tenant: str, *, content: bool, run_id: str | None = None
) -> list[Waiting]:
    """Return the longest-waiting approvals of a tenant, or of one run, up to MAX_WAITING; each includes
    the beginning of what it is about if the reader may see content."""
    async with context.long_reads.place(tenant):
        rows = await context.pool.fetch(
            WAITING,
            tenant,
            MAX_WAITING,
            content,
            run_id,
            MAX_SHOWN_CHARS,
            timeout=QUERY_TIMEOUT_S,
        )
        prompts = [await _prompt(context, tenant, row, content=content) for row in rows]
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
    ]


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
