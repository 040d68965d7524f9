"""`/v1/content`: stored prompts and answers, shown to those who may see content."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query

from hocket.admin.context import Ctx
from hocket.admin.pages import (
    DEFAULT_PAGE,
    EPOCH,
    MAX_CALL_CHARS,
    After,
    Limit,
    cursor,
    parse_cursor,
)
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool, large_rows
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.kit.postgres.lookups import KEPT_OF_THIS_RUN
from hocket.schemas.access.roles import Permission
from hocket.schemas.errors import InvalidInput
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
WHERE tenant = $1 AND call_id = ANY ($2::text[]) AND {KEPT_OF_THIS_RUN}
ORDER BY kept_at DESC
LIMIT 1
"""
"""What is stored of a call, given by its own id and that of one of its attempts, whichever run it
names."""

OF_CALL_OF_RUN = OF_CALL.replace("WHERE", "WHERE run_id = $3 AND", 1)

RunId = Annotated[
    str | None, Query(alias="run", min_length=1, max_length=256, pattern=r"^[^\x00]+$")
]
CallId = Annotated[
    str | None, Query(alias="call", min_length=1, max_length=MAX_CALL_CHARS, pattern=r"^[^\x00]+$")
]

router = APIRouter(prefix="/v1/content", tags=["calls"])


@router.get("")
@needs(Permission.CONTENT_READ)
async def content_of_run(
    context: Ctx,
    caller: CallerDep,
    run_id: RunId = None,
    call_id: CallId = None,
    limit: Limit = DEFAULT_PAGE,
    after: After = None,
) -> ContentList:
    """List the stored prompts and answers of the calls of a `run`, or those of one `call`, which need
    not name a run. What is stored, and how, is set in the section `content:` of the gateway's
    configuration."""
    start = (EPOCH, "") if after is None else parse_cursor(after)
    if call_id is None and run_id is None:
        cure = "Add it, or send `call` with the ID of a call."
        raise InvalidInput(field="run", reason="it is missing", cure=cure)
    async with context.long_reads.place(caller.tenant):
        if call_id is not None:
            found = await content_of_call(context.pool, caller.tenant, run_id, call_id)
            return ContentList(content=() if found is None else (found,))
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


async def content_of_call(
    pool: Pool, tenant: str, run_id: str | None, call_id: str
) -> KeptContent | None:
    """Return the stored content of a run's call (of any run or none, if `run_id` is None), or None if
    there is none; an attempt's id selects the call it belongs to."""
    ids = [call_id, call_of(call_id)]
    if run_id is None:
        row = await pool.fetchrow(OF_CALL, tenant, ids, timeout=QUERY_TIMEOUT_S)
    else:
        row = await pool.fetchrow(OF_CALL_OF_RUN, tenant, ids, run_id, timeout=QUERY_TIMEOUT_S)
    return None if row is None else _shown(dict(row))


def _shown(row: dict[str, Any]) -> KeptContent:
    prompt, answer = json.loads(row.pop("prompt")), json.loads(row.pop("answer"))
    return KeptContent(**row, prompt=prompt, answer=answer)
