"""Plans are compiled once for all who ask at the same time, and no tenant displaces those of others."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.admin.pipelines import reads, versions
from hocket.admin.pipelines.awaited_names import AwaitedNames, awaited_by
from hocket.admin.pipelines.reads import ActiveVersion
from hocket.admin.pipelines.settling import RELEASE_FOR_S
from hocket.admin.pipelines.versions import Plans
from hocket.admin.queries import Pool
from hocket.coordinator.storage.pipelines.pipeline_catalog import RELEASE_FOR_MS
from hocket.kit.process import clock
from hocket.schemas.errors import PipelineUnknown
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from hocket.schemas.rest import RunSubmission

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


async def test_what_runs_wait_for_is_found_once_for_each_plan(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[AwaitedNames] = []

    def counted(plan: Plan) -> AwaitedNames:
        found.append(awaited_by(plan))
        return found[-1]

    monkeypatch.setattr(versions, "awaited_by", counted)
    plans = Plans()
    for _ in range(3):
        await plans.plan_of(POOL, "a", "p", 1)
        assert await plans.awaited_by(POOL, "a", "p", 1) is found[0]
    assert (compiled, len(found)) == (["a"], 1)


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


async def test_the_active_version_is_as_old_as_the_question_for_it(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before a change is gone RELEASE_FOR_S after its commit, when it is answered."""
    at_s, asked = 0.0, 0

    async def active_version(_pool: Pool, _tenant: str, _name: str) -> ActiveVersion:
        nonlocal at_s, asked
        asked += 1
        at_s += 0.6 * RELEASE_FOR_S
        return ActiveVersion(asked, is_archived=False)

    monkeypatch.setattr(reads, "active_version", active_version)
    monkeypatch.setattr(clock, "monotonic_ms", lambda: at_s * 1_000)
    plans = Plans()
    for later_s, expected in ((0.0, 1), (0.3, 1), (0.2, 2)):
        at_s += later_s * RELEASE_FOR_S
        await plans.check(POOL, "a", RunSubmission(pipeline="p", input={}))
        assert asked == expected


def test_changes_wait_as_long_as_coordinators_keep_the_former_choice() -> None:
    assert RELEASE_FOR_S * 1_000 == RELEASE_FOR_MS
