"""Plans are compiled once for all who ask at the same time, and no tenant displaces those of others."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.admin.pipelines import reads, versions
from hocket.admin.pipelines.versions import Plans
from hocket.admin.queries import Pool
from hocket.schemas.errors import PipelineUnknown
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

BOUND_S = 30.0
POOL = cast(Pool, None)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tenants whose pipelines were compiled; there is every pipeline but `gone`."""
    found: list[str] = []

    async def version_of(_pool: Pool, tenant: str, name: str, _number: int) -> Any:
        await asyncio.sleep(0)
        if name == "gone":
            raise PipelineUnknown(pipeline=name, tenant=tenant)
        node = {"type": "python", "handler": "hocket.workers.builtin:echo"}
        return SimpleNamespace(spec={"pipeline": name, "nodes": {tenant: node}})

    def counted(spec: Any, *, applied: bool) -> Plan:
        found.extend(spec["nodes"])
        return compile_pipeline(spec, applied=applied)

    monkeypatch.setattr(reads, "version_of", version_of)
    monkeypatch.setattr(versions, "compile_pipeline", counted)
    return found


async def test_those_who_ask_at_once_have_one_plan(compiled: list[str]) -> None:
    plans = Plans()
    async with asyncio.timeout(BOUND_S):
        asked = [asyncio.create_task(plans.plan_of(POOL, "a", "p", 1)) for _ in range(12)]
        await asyncio.sleep(0)
        asked[0].cancel()  # who goes away takes no plan from others
        found = await asyncio.gather(*asked[1:])

    assert compiled == ["a"]
    assert len({id(plan) for _, plan in found}) == 1


async def test_an_error_is_of_those_who_asked_and_is_not_kept(compiled: list[str]) -> None:
    plans = Plans()
    async with asyncio.timeout(BOUND_S):
        for _ in range(2):
            asked = [plans.plan_of(POOL, "a", "gone", 1) for _ in range(2)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(error) for error in found] == [PipelineUnknown] * 2
    assert compiled == []


async def test_a_tenant_with_many_pipelines_displaces_only_its_own(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "PLANS_KEPT", 4)
    plans = Plans()
    async with asyncio.timeout(BOUND_S):
        await plans.plan_of(POOL, "quiet", "p", 1)
        for number in range(8):
            await plans.plan_of(POOL, "busy", f"p{number}", 1)
        compiled.clear()
        await plans.plan_of(POOL, "quiet", "p", 1)
        for number in (5, 6, 7):
            await plans.plan_of(POOL, "busy", f"p{number}", 1)
        assert compiled == []
        await plans.plan_of(POOL, "busy", "p4", 1)
    assert compiled == ["busy"]
