"""Two versions of a pipeline side by side."""

import asyncio
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from hocket.admin.console.authors import names_of
from hocket.admin.console.documents import short_spec
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import compact, pretty, render
from hocket.admin.console.views.line_diff import LineDiff, diff_of
from hocket.admin.context import Ctx
from hocket.admin.pipelines import reads as pipelines
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import VersionNumber
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import Token

router = page_router()


@router.get("/pipelines/{name}/diff")
@needs(Permission.PIPELINES_READ)
async def console_pipeline_diff(
    request: Request,
    name: Token,
    context: Ctx,
    caller: CallerDep,
    a: VersionNumber,
    b: VersionNumber,
) -> Response:
    """Show two versions of a pipeline side by side."""
    found = [
        await pipelines.version_of(context.pool, caller.tenant, name, number) for number in (a, b)
    ]
    values = {
        "section": "Pipelines",
        "name": name,
        "versions": found,
        "by": await names_of(context.pool, [one.created_by for one in found]),
        "diff": await asyncio.to_thread(_spec_diff, *(one.spec for one in found)),
    }
    return render(request, caller, "pipeline_diff.html", values)


def _spec_diff(left: dict[str, Any], right: dict[str, Any]) -> LineDiff:
    ours, theirs = short_spec(left), short_spec(right)
    return diff_of(pretty(ours), pretty(theirs), equal=compact(ours) == compact(theirs))
