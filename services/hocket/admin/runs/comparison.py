"""Two runs side by side, node by node."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import asyncpg

from hocket.admin.node_steps import COUNTS, counted
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.schemas.administration.comparison import Difference
from hocket.schemas.rest import NodeCost, RunCost, SubRunCost, ToolCost

MAX_NODES = 500
MAX_COMPARED_STEPS = 10_000
"""The largest number of steps whose values are compared; for larger runs only states and figures are
compared."""

NODES = f"""
WITH size AS (
    SELECT count(*) <= $3 AS is_small
    FROM (SELECT FROM hocket.step WHERE run_id = $1 LIMIT $3 + 1) counted
)
SELECT path, {COUNTS},
       min(ready_at) AS ready_at,
       min(started_at) AS started_at,
       max(finished_at) AS finished_at,
       CASE WHEN (SELECT is_small FROM size) THEN
           md5(string_agg(md5(coalesce(input::text, '')), ',' ORDER BY key)) END AS input,
       CASE WHEN (SELECT is_small FROM size) THEN
           md5(string_agg(md5(coalesce(output::text, '')), ',' ORDER BY key)) END AS output
FROM hocket.step
WHERE run_id = $1 AND ($4::text[] IS NULL OR path = ANY ($4))
GROUP BY path
ORDER BY min(ready_at), path
LIMIT $2
"""
"""The nodes of a run, or those named: how many steps, how they ended, when, and the digests of the
values of all of them."""


@dataclass(frozen=True, slots=True)
class NodeSide:
    """What a node did in one of the runs; times in milliseconds. Of a mapped or looped node the items or
    rounds are counted, and `state` is its own."""

    steps: int
    succeeded: int
    failed: int
    state: str
    at_ms: float
    ran_ms: float | None
    input: str | None
    output: str | None
    cost: Decimal


@dataclass(frozen=True, slots=True)
class NodePair:
    """A node in both runs, None on a side that has not reached it, and how the two differ."""

    node: str
    left: NodeSide | None
    right: NodeSide | None
    differs: tuple[Difference, ...]
    first: bool = False


async def nodes_of_both(
    pool: Pool, runs: Sequence[asyncpg.Record], costs: Sequence[RunCost], *, values: bool
) -> tuple[dict[str, NodeSide], dict[str, NodeSide]]:
    """Return what the first MAX_NODES nodes of each of two runs did, in both of them; with digests of
    their values if `values`."""
    left, right = [
        await _nodes_of(pool, run, cost, values=values)
        for run, cost in zip(runs, costs, strict=True)
    ]
    # a node that is among the first of one run only has not therefore been left out by the other
    beyond = [
        await _nodes_of(pool, run, cost, values=values, names=names)
        for run, cost, names in zip(
            runs, costs, (right.keys() - left.keys(), left.keys() - right.keys()), strict=True
        )
    ]
    return left | beyond[0], right | beyond[1]


async def _nodes_of(
    pool: Pool,
    run: asyncpg.Record,
    cost: RunCost,
    *,
    values: bool,
    names: Collection[str] | None = None,
) -> dict[str, NodeSide]:
    """Return what the first nodes of a run did, or those with these names, ordered by when they became
    ready."""
    if names is not None and not names:
        return {}
    spent: dict[str | None, Decimal] = {}
    parts: tuple[NodeCost | ToolCost | SubRunCost, ...] = (*cost.nodes, *cost.tools, *cost.sub_runs)
    for part in parts:
        spent[part.node] = spent.get(part.node, Decimal(0)) + part.cost_usd
    compared = MAX_COMPARED_STEPS if values else 0
    chosen = None if names is None else sorted(names)
    asked = (run["run_id"], MAX_NODES, compared, chosen)
    rows = await pool.fetch(NODES, *asked, timeout=QUERY_TIMEOUT_S)
    return {row["path"]: _side(row, run, spent.get(row["path"], Decimal(0))) for row in rows}


def _side(row: asyncpg.Record, run: asyncpg.Record, cost: Decimal) -> NodeSide:
    began, ended = row["started_at"], row["finished_at"]
    own, items = counted(row)
    return NodeSide(
        steps=items.steps,
        succeeded=items.succeeded,
        failed=items.failed,
        state=own.state,
        at_ms=(row["ready_at"] - run["accepted_at"]).total_seconds() * 1_000,
        ran_ms=(ended - began).total_seconds() * 1_000 if began and ended else None,
        input=row["input"],
        output=row["output"],
        cost=cost,
    )


def side_by_side(left: Mapping[str, NodeSide], right: Mapping[str, NodeSide]) -> list[NodePair]:
    """Return the nodes of two runs in order of time; the earliest node that differs is marked. Pure."""
    names = {**left, **right}
    order = sorted(names, key=lambda name: (names[name].at_ms, name))
    pairs: list[NodePair] = []
    marked = False
    for name in order:
        ours, theirs = left.get(name), right.get(name)
        differs = differences(ours, theirs)
        pairs.append(NodePair(name, ours, theirs, differs, first=bool(differs) and not marked))
        marked = marked or bool(differs)
    return pairs


def are_all(nodes: Mapping[str, NodeSide]) -> bool:
    """Tell whether these are all nodes of their run, and not only the first ones. Pure."""
    return len(nodes) < MAX_NODES


def has_values(nodes: Mapping[str, NodeSide]) -> bool:
    """Tell whether the nodes have digests of their values. Pure."""
    return all(node.input is not None for node in nodes.values())


def differences(left: NodeSide | None, right: NodeSide | None) -> tuple[Difference, ...]:
    """Return the ways in which a node differs between two runs. A digest that is missing on one side is
    not compared: the run has too many steps. Pure."""
    if left is None or right is None:
        return ("only_b" if left is None else "only_a",)
    compared: dict[Difference, tuple[Any, Any]] = {
        "input": (left.input, right.input),
        "steps": (left.steps, right.steps),
        "state": ((left.state, left.failed), (right.state, right.failed)),
        "output": (left.output, right.output),
    }
    return tuple(
        name
        for name, (ours, theirs) in compared.items()
        if ours != theirs and None not in (ours, theirs)
    )
