"""Two runs side by side."""

import asyncio
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.console.run import shown_values
from hocket.admin.console.run.shown_values import ValueTexts
from hocket.admin.console.views import run_page
from hocket.admin.console.views.line_diff import LineDiff, diff_of
from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import comparison
from hocket.admin.runs import reads as runs
from hocket.admin.runs.lookup import found_run
from hocket.schemas.access.roles import Permission

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
    rows = [await found_run(context, tenant, run_id, values=False) for run_id in (a, b)]
    async with context.long_reads.place(tenant):
        costs = [await runs.run_cost(pool, tenant, run_id) for run_id in (a, b)]
        left, right = await comparison.nodes_of_both(pool, rows, costs, values=caller.sees_content)
        stored = []
        if caller.sees_content:
            stored = [
                await shown_values.of_run(pool, tenant, run_id, digests=True) for run_id in (a, b)
            ]
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
    if stored:
        values |= await asyncio.to_thread(_diffs, *stored)
    return render(request, caller, "compare.html", values)


def _diffs(left: ValueTexts, right: ValueTexts) -> dict[str, LineDiff]:
    inputs_equal = left.input_digest == right.input_digest
    outputs_equal = left.output_digest == right.output_digest
    left, right = left.shown(), right.shown()
    return {
        "input": diff_of(left.input or "", right.input or "", equal=inputs_equal),
        "output": diff_of(left.output or "", right.output or "", equal=outputs_equal),
    }
