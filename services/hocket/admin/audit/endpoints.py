"""`/v1/audit`: who changed what, and whether the chain of rows is intact."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from hocket.admin.context import Ctx
from hocket.admin.pages import DEFAULT_PAGE, Limit
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import WHOLE
from hocket.admin.requests.permissions import needs
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import BEGIN, Link
from hocket.schemas.access.bodies import AuditEntry, AuditPage, AuditVerdict
from hocket.schemas.access.roles import Permission
from hocket.schemas.errors import InvalidInput

MAX_SEQ = 2**63 - 1
MAX_CHECKED = 100_000
"""Rows of the audit log that are checked for one request with a limit: this takes seconds."""
HASH = r"^[0-9a-f]{64}$"

AfterSeq = Annotated[
    Annotated[int, Field(ge=0, le=MAX_SEQ), WHOLE],
    Query(description="Cursor: `next` of the previous page."),
]

router = APIRouter(prefix="/v1/audit", tags=["audit"])


@router.get("")
@needs(Permission.AUDIT_READ)
async def list_audit(
    context: Ctx, caller: CallerDep, after: AfterSeq = 0, limit: Limit = DEFAULT_PAGE
) -> AuditPage:
    """List audit log entries, oldest first: those of the key's tenant, or all of them for an
    all-tenants key."""
    tenant = caller.bearer.tenant
    rows = await audit_log.page(context.pool, after=after, tenant=tenant, limit=limit + 1)
    page = rows[:limit]
    entries = tuple(AuditEntry(**row.as_json()) for row in page)
    return AuditPage(entries=entries, next=page[-1].seq if len(rows) > limit else None)


@router.get("/verdict")
@needs(Permission.AUDIT_READ)
async def verify_audit(
    context: Ctx,
    caller: CallerDep,
    head: Annotated[
        str | None,
        Query(pattern=HASH, description="Hash of a row that must still be in the log."),
    ] = None,
    from_row: Annotated[
        Annotated[int, Field(ge=1, le=MAX_SEQ), WHOLE] | None,
        Query(description="Go on from this row, which an earlier check found intact."),
    ] = None,
    from_hash: Annotated[
        str | None, Query(pattern=HASH, description="Hash of that row, in the same check.")
    ] = None,
    limit: Annotated[
        Annotated[int, Field(ge=1, le=MAX_CHECKED), WHOLE] | None,
        Query(description="Maximum number of rows to check; `next` and `head` say where to go on."),
    ] = None,
) -> AuditVerdict:
    """Read the audit log and check that each row follows the one before it. A long log takes a while:
    with `limit`, check it in parts. Requires an all-tenants key."""
    caller.check_all_tenants()
    found = await audit_log.verified(
        context.pool, head, start=_start(from_row, from_hash), limit=limit
    )
    return AuditVerdict(
        status="whole" if found.broken_at is None else "broken",
        rows=found.rows,
        head=found.head,
        broken_at=found.broken_at,
        reason=found.reason,
        next=found.next,
    )


def _start(seq: int | None, row_hash: str | None) -> Link:
    """Return the row from which a check goes on, or raise InvalidInput."""
    if seq is None and row_hash is None:
        return BEGIN
    if seq is None or row_hash is None:
        raise InvalidInput(
            field="from_row" if seq is None else "from_hash",
            reason="`from_row` and `from_hash` belong together",
            cure="Pass `rows` and `head` of the earlier check.",
        )
    return Link(seq, bytes.fromhex(row_hash))
