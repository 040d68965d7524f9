"""The page of bulk operations and their progress."""

from fastapi import Request
from fastapi.responses import Response

from hocket.admin.bulk import store
from hocket.admin.console.authors import names_of
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import address, is_part, render
from hocket.admin.console.views.run_list import filter_text
from hocket.admin.context import Ctx
from hocket.admin.pages import After
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission

ROWS = 50

router = page_router()


@router.get("/bulk")
@needs(Permission.RUNS_READ)
async def console_bulk(
    request: Request, context: Ctx, caller: CallerDep, after: After = None
) -> Response:
    """List bulk operations, the latest first; a script asks again while one of them goes on."""
    found = await store.list_latest(context.pool, caller.tenant, after, ROWS)
    values = {
        "section": "Runs",
        "operations": found.operations,
        "by": await names_of(context.pool, [one.created_by for one in found.operations]),
        "filter_text": filter_text,
        "goes_on": any(one.state == "running" for one in found.operations),
        "older": address(request, after=found.next) if found.next else None,
    }
    return render(request, caller, "bulk_rows.html" if is_part(request) else "bulk.html", values)
