"""`/v1/content`: stored prompts and answers, shown to those who may see content."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query

from hocket.admin.context import Ctx
from hocket.admin.pages import DEFAULT_PAGE, EPOCH, After, Limit, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool, large_rows
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.kit.postgres.lookups import KEPT_OF_THIS_RUN
from hocket.schemas.access.roles import Permission
from hocket.schemas.ids import call_of
from hocket.schemas.tracing.content import ContentList, KeptContent

MAX_CONTENT_BYTES = 4 * 1_048_576
"""The size of prompts and answers in one page; a page ends with the call that exceeds it."""

CONTENT = f"""
SELECT call_id, run_id, step, attempt, model, kept, prompt, answer, is_cut, started_at
FROM hocket.content c
WHERE tenant = $1 AND run_id = $2 AND (started_at, call_id) > ($3, $4) AND {KEPT_OF_THIS_RUN}
ORDER BY started_at, call_id
LIMIT $5
"""

OF_CALL = f"""
SELECT call_id, run_id, step, attempt, model, kept, prompt, answer, is_cut, started_at
FROM hocket.content c
WHERE tenant = $1 AND run_id = $2 AND call_id = ANY ($3::text[]) AND {KEPT_OF_THIS_RUN}
ORDER BY kept_at DESC
LIMIT 1
"""
"""What is stored of a call, given by its own id and that of one of its attempts."""

router = APIRouter(prefix="/v1/content", tags=["calls"])


@router.get("")
@needs(Permission.CONTENT_READ)
async def content_of_run(
    context: Ctx,
    caller: CallerDep,
    run_id: Annotated[str, Query(alias="run", min_length=1, max_length=256, pattern=r"^[^\x00]+$")],
    limit: Limit = DEFAULT_PAGE,
    after: After = None,
) -> ContentList:
    """List the stored prompts and answers of a run's calls. What is stored, and how, is set in the
    section `content:` of the gateway's configuration."""
    start = (EPOCH, "") if after is None else parse_cursor(after)
    async with context.long_reads.place(caller.tenant):
        arguments = (caller.tenant, run_id, *start, limit + 1)
        page, there_is_more = await large_rows(
            context.pool,
            CONTENT,
            arguments,
            limit=limit,
            limit_bytes=MAX_CONTENT_BYTES,
            size_of=lambda row: len(row["prompt"].encode()) + len(row["answer"].encode()),
        )
        return ContentList(
            content=tuple(_shown(dict(row)) for row in page),
            truncated=there_is_more,
            next=cursor(page[-1]["started_at"], page[-1]["call_id"]) if there_is_more else None,
        )


async def content_of_call(pool: Pool, tenant: str, run_id: str, call_id: str) -> KeptContent | None:
    """Return the stored content of a run's call, or None if there is none; an attempt's id selects the
    call it belongs to."""
    ids = [call_id, call_of(call_id)]
    row = await pool.fetchrow(OF_CALL, tenant, run_id, ids, timeout=QUERY_TIMEOUT_S)
    return None if row is None else _shown(dict(row))


def _shown(row: dict[str, Any]) -> KeptContent:
    prompt, answer = json.loads(row.pop("prompt")), json.loads(row.pop("answer"))
    return KeptContent(**row, prompt=prompt, answer=answer)
