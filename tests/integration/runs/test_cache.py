"""`cache` on the whole platform: processes, NATS and Postgres. What was executed stands in a journal
that the handlers keep."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hocket.schemas import ids
from support.journal_rig import BOUND_S, PARTITIONS, Rig, command, journal_rig, until

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
async def rig() -> AsyncIterator[Rig]:
    async with journal_rig() as running:
        yield running


def counted(handler: str = "count", **fields: Any) -> dict[str, Any]:
    cache = {"ttl_ms": HOUR_MS}
    node = {"type": "python", "handler": f"journal_handlers:{handler}", "cache": cache}
    return node | {"with": {"v": "{{ input.v }}"}} | fields


async def test_two_pipelines_share_what_one_computed(rig: Rig) -> None:
    await rig.apply("first", {"a": counted()})
    await rig.apply("second", {"x": counted(), "y": counted(needs=["x"])})
    one = await rig.run("first", {"v": "shared"})
    two = await rig.run("second", {"v": "shared"})
    assert (one["output"], two["output"]) == ({"v": "shared"}, {"v": "shared"})
    assert rig.calls("shared") == 1
    steps = await rig.steps(two["run_id"])
    source = {"kind": "cache", "run_id": one["run_id"], "step": "a", "saved_usd": "0"}
    assert [steps[name]["source"] for name in "xy"] == [source, source]
    assert (await rig.steps(one["run_id"]))["a"]["source"] is None


async def test_a_tenant_is_not_served_what_another_computed(rig: Rig) -> None:
    await rig.apply("mine", {"a": counted()})
    await rig.run("mine", {"v": "private"})
    other = rig.platform.api("other")
    await asyncio.to_thread(
        other.post, "/v1/pipelines", {"pipeline": "mine", "nodes": {"a": counted()}}
    )
    body = {"pipeline": "mine", "input": {"v": "private"}, "wait_ms": BOUND_S * 1_000}
    assert (await asyncio.to_thread(other.post, "/v1/runs", body))["status"] == "succeeded"
    assert rig.calls("private") == 2


async def test_many_runs_over_several_partitions_compute_once(rig: Rig) -> None:
    await rig.apply("flight", {"a": counted("gated")}, slo_ms=300_000)
    run_ids = [await rig.submit("flight", {"v": "once"}) for _ in range(40)]
    assert len({ids.partition_of(run_id, PARTITIONS) for run_id in run_ids}) == PARTITIONS
    query = "SELECT 1 FROM hocket.step_cache_waiter HAVING count(*) = 39"
    await until(lambda: rig.sql(query))
    rig.open_gate("once")
    ends = [await rig.ended(run_id) for run_id in run_ids]
    assert [end["output"] for end in ends] == [{"v": "once"}] * 40
    assert rig.calls("once") == 1
    sources = [(await rig.steps(run_id))["a"]["source"] for run_id in run_ids]
    assert sources.count(None) == 1


async def test_who_waits_computes_when_the_first_fails(rig: Rig) -> None:
    await rig.apply("hand-over", {"a": counted("gated")}, slo_ms=300_000)
    first = await rig.submit("hand-over", {"v": "relay"})
    await until(lambda: _calls(rig, "relay", 1))
    second = await rig.submit("hand-over", {"v": "relay"})
    third = await rig.submit("hand-over", {"v": "relay"})
    await until(lambda: rig.sql("SELECT 1 FROM hocket.step_cache_waiter HAVING count(*) = 2"))
    rig.open_gate("relay", "fail")
    assert (await rig.ended(first))["status"] == "failed"
    ends = [await rig.ended(run_id) for run_id in (second, third)]
    assert [end["status"] for end in ends] == ["succeeded"] * 2
    assert rig.calls("relay") == 2


async def test_who_waits_computes_when_the_first_is_cancelled(rig: Rig) -> None:
    await rig.apply("stop", {"a": counted("gated")}, slo_ms=300_000)
    first = await rig.submit("stop", {"v": "stopped"})
    await until(lambda: _calls(rig, "stopped", 1))
    second = await rig.submit("stop", {"v": "stopped"})
    await until(lambda: rig.sql("SELECT 1 FROM hocket.step_cache_waiter HAVING count(*) = 1"))
    await asyncio.to_thread(rig.api.post, f"/v1/runs/{first}/cancel", {})
    await until(lambda: _calls(rig, "stopped", 2))
    rig.open_gate("stopped")
    assert (await rig.ended(second))["status"] == "succeeded"
    assert (await rig.ended(first))["status"] == "cancelled"


async def test_what_is_older_than_its_ttl_is_computed_again(rig: Rig) -> None:
    await rig.apply("ages", {"a": counted()})
    await rig.run("ages", {"v": "old"})
    await rig.run("ages", {"v": "old"})
    assert rig.calls("old") == 1
    await rig.sql("UPDATE hocket.step_cache SET filled_at = filled_at - interval '1 hour'")
    await rig.run("ages", {"v": "old"})
    assert rig.calls("old") == 2


async def test_a_model_call_that_was_spared_is_booked_as_saved(rig: Rig) -> None:
    node = {"type": "llm", "model": "probe", "prompt": "?", "with": {"q": "{{ input.q }}"}}
    await rig.apply("saving", {"ask": node | {"cache": {"ttl_ms": HOUR_MS}}})
    paid = await rig.run("saving", {"q": "why"})
    for _ in range(2):
        spared = await rig.run("saving", {"q": "why"})
    cost = await asyncio.to_thread(rig.api.get, f"/v1/runs/{spared['run_id']}/cost")
    assert (cost["calls"], cost["cache_hits"], cost["cache_saved_usd"]) == (0, 1, "0.01")
    booked = await until(
        lambda: rig.sql("SELECT cost_usd FROM hocket.usage WHERE run_id = $1", paid["run_id"])
    )
    saved = await rig.sql(
        "SELECT node, hits, saved_usd FROM report.cache_savings WHERE pipeline = 'saving'"
    )
    assert [tuple(row) for row in saved] == [("ask", 2, 2 * booked[0]["cost_usd"])]
    page = await asyncio.to_thread(rig.api.get, "/v1/costs/cache", pipeline="saving")
    assert [(row["hits"], row["saved_usd"]) for row in page["savings"]] == [(2, "0.02")]
    assert "total $0.02" in await command(rig, "cost", "--by", "cache", "-p", "saving")
    shown = await command(rig, "runs", "show", spared["run_id"])
    assert "the cache served 1 step and saved $0.01" in shown


@pytest.mark.parametrize("released", [True, False])
async def test_a_coordinator_that_dies_while_runs_wait_leaves_none_hanging(
    rig: Rig, released: bool
) -> None:
    value = f"crash-{released}"
    await rig.apply("crash", {"a": counted("gated")}, slo_ms=300_000)
    run_ids = [await rig.submit("crash", {"v": value}) for _ in range(12)]
    await until(lambda: rig.sql("SELECT 1 FROM hocket.step_cache_waiter HAVING count(*) = 11"))
    if released:  # the output and the death race each other
        rig.open_gate(value)
    await rig.platform.kill("coordinator")
    rig.open_gate(value)
    ends = [await rig.ended(run_id) for run_id in run_ids]
    assert [end["status"] for end in ends] == ["succeeded"] * 12
    assert rig.calls(value) == 1


async def _calls(rig: Rig, value: str, wanted: int) -> bool:
    return rig.calls(value) >= wanted
