"""`/v1/runs/{run_id}/compare`: two runs side by side."""

from typing import Annotated

from fastapi import APIRouter, Query

from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import comparison, reads
from hocket.admin.runs.comparison import NodeSide as Side
from hocket.admin.runs.lookup import RunId, found_run
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.comparison import NodeComparison, NodeSide, RunComparison

OtherRun = Annotated[str, Query(pattern=r"^r[0-9a-f]{24}$", description="ID of the other run.")]

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=PlainJsonRoute)


@router.get("/{run_id}/compare")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def compare_runs(
    run_id: RunId, context: Ctx, caller: CallerDep, other: OtherRun
) -> RunComparison:
    """Compare a run (`a`) with another one (`b`) node by node, and mark the first node that differs.
    Inputs and outputs are compared only for keys with `content.read`."""
    pool, tenant = context.pool, caller.tenant
    rows = [await found_run(context, tenant, one, values=False) for one in (run_id, other)]
    async with context.long_reads.place(tenant):
        costs = [await reads.run_cost(pool, tenant, one) for one in (run_id, other)]
        left, right = await comparison.nodes_of_both(pool, rows, costs, values=caller.sees_content)
    return RunComparison(
        a=reads.summary(rows[0]),
        b=reads.summary(rows[1]),
        nodes=tuple(
            NodeComparison(
                node=pair.node,
                a=_side(pair.left),
                b=_side(pair.right),
                differs=pair.differs,
                first=pair.first,
            )
            for pair in comparison.side_by_side(left, right)
        ),
        withheld=not caller.sees_content,
    )


def _side(side: Side | None) -> NodeSide | None:
    if side is None:
        return None
    return NodeSide(
        steps=side.steps,
        succeeded=side.succeeded,
        failed=side.failed,
        state=side.state,
        at_ms=round(side.at_ms, 3),
        ran_ms=None if side.ran_ms is None else round(side.ran_ms, 3),
        cost_usd=side.cost,
    )
