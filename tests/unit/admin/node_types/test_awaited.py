"""Which steps are said to wait for a worker that does not run."""

from types import SimpleNamespace
from typing import Any

import pytest

from hocket.admin.node_types import registry
from hocket.admin.node_types.awaited import with_awaited
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.schemas.rest import StepDetail, StepList

TOOL = {
    "parameters": {"type": "object"},
    "node": {"type": "crm.find", "queue": "gpu"},
}
PLAN = compile_pipeline(
    {
        "pipeline": "asks",
        "nodes": {"ask": {"type": "agent", "model": "m", "prompt": "p", "tools": {"find": TOOL}}},
    }
)


async def plan_of(*_: Any) -> Any:
    return 1, PLAN


async def said(pools: dict[str, int]) -> str | None:
    """Return what a called tool is said to wait for if these pools have workers."""
    types = registry.NodeTypes()
    types.types.announced("w1", pools, 0.0)
    types._opened_at_ms = monotonic_ms() - 2 * registry.SETTLED_MS
    context: Any = SimpleNamespace(
        node_types=types, pool=None, plans=SimpleNamespace(plan_of=plan_of)
    )
    step = StepDetail(
        step="ask#1/find_1", node="ask/find_1", type="crm.find", role="leaf", state="dispatched",
        attempt=1, ready_at="2026-01-01T00:00:00Z",  # type: ignore[arg-type]
    )  # fmt: skip
    found = await with_awaited(context, "acme", "asks", 1, StepList(run_id="r", steps=(step,)))
    waits = found.steps[0].waits_for
    return None if waits is None else waits.reason


@pytest.mark.parametrize("pool", ["crm.find@gpu", "crm.find"])
async def test_a_tool_of_an_agent_whose_type_has_workers_is_not_said_to_have_none(
    pool: str,
) -> None:
    assert await said({pool: 2}) is None


async def test_a_tool_whose_type_no_worker_runs_says_so() -> None:
    assert "No worker runs `crm.find` now" in str(await said({"llm": 2}))
