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
from hocket.schemas.access.bodies import AuditEntry, AuditPage, AuditVerdict
from hocket.schemas.access.roles import Permission

MAX_SEQ = 2**63 - 1

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
    rows = await audit_log.page(context.pool, after=after, tenant=caller.bearer.tenant, limit=limit)
    entries = tuple(AuditEntry(**row.as_json()) for row in rows)
    return AuditPage(entries=entries, next=rows[-1].seq if len(rows) == limit else None)


@router.get("/verdict")
@needs(Permission.AUDIT_READ)
async def verify_audit(
    context: Ctx,
    caller: CallerDep,
    head: Annotated[
        str | None,
        Query(
            pattern=r"^[0-9a-f]{64}$", description="Hash of a row that must still be in the log."
        ),
    ] = None,
) -> AuditVerdict:
    """Read the whole audit log and check that each row follows the one before it. Requires an
    all-tenants key."""
    caller.check_all_tenants()
    found = await audit_log.verified(context.pool, head)
    return AuditVerdict(
        status="whole" if found.broken_at is None else "broken",
        rows=found.rows,
        head=found.head,
        broken_at=found.broken_at,
        reason=found.reason,
    )
