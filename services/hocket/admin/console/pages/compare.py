"""Two runs, or two versions of a pipeline, side by side."""

import asyncio
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.console.authors import names_of
from hocket.admin.console.documents import short_spec
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import compact, pretty, render
from hocket.admin.console.views import run_page
from hocket.admin.console.views.line_diff import LineDiff, diff_of
from hocket.admin.context import Ctx
from hocket.admin.pipelines import reads as pipelines
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import VersionNumber
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import comparison
from hocket.admin.runs import reads as runs
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import Token

RunChoice = Annotated[str, Query(pattern=r"^r[0-9a-f]{24}$")]

WORDS = {"only_a": "only in A", "only_b": "only in B"}
"""Names of differences for which the API's term is not meant for people."""

router = page_router()


@router.get("/compare")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_compare(
    request: Request, context: Ctx, caller: CallerDep, a: RunChoice, b: RunChoice
) -> Response:
    """Show two runs side by side, and the first node that differs. Who may not see content is not told
    whether it differs: with a run of one's own that would tell what is in another's."""
    pool, tenant = context.pool, caller.tenant
    rows = [await runs.run_row(pool, tenant, run_id) for run_id in (a, b)]
    async with context.long_reads.place(tenant):
        costs = [await runs.run_cost(pool, tenant, run_id) for run_id in (a, b)]
        left, right = await comparison.nodes_of_both(pool, rows, costs, values=caller.sees_content)
    found = [runs.detail(row) for row in rows]
    values: dict[str, Any] = {
        "section": "Runs",
        "sides": [
            {
                "name": name,
                "run": run,
                "cost": cost,
                "spent": run_page.spent_usd(run, cost),
                "took": run_page.took_ms(run),
            }
            for name, run, cost in zip("AB", found, costs, strict=True)
        ],
        "nodes": comparison.side_by_side(left, right),
        "compared": comparison.has_values(left) and comparison.has_values(right),
        "of_nodes": "All" if comparison.are_all(left | right) else "The first",
        "words": WORDS,
        "input": None,
        "output": None,
    }
    if caller.sees_content:
        values["input"] = await asyncio.to_thread(_value_diff, *(run.input for run in found))
        values["output"] = await asyncio.to_thread(_value_diff, *(run.output for run in found))
    return render(request, caller, "compare.html", values)


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
    return _value_diff(short_spec(left), short_spec(right))


def _value_diff(left: Any, right: Any) -> LineDiff:
    return diff_of(pretty(left), pretty(right), equal=compact(left) == compact(right))
