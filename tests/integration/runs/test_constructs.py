"""Constructs of the spec on the real platform: what the pure core is tested for also runs."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.cli.terminal.errors import ApiRefused
from support.places import HANDLERS

ECHO = {"type": "python", "handler": "construct_handlers:echo"}
FAIL = {"type": "python", "handler": "construct_handlers:fail"}
BOUND_S = 20


@pytest.fixture(scope="module")
async def api() -> AsyncIterator[Api]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {
        "HOCKET_HANDLERS": "construct_handlers",
        "PYTHONPATH": HANDLERS,
    }
    services = ("coordinator", "worker", "ledger", "admin")
    async with Platform(
        folder / "d", env=environment, services=services, worker_types=("python",)
    ) as platform:
        yield platform.api()
    shutil.rmtree(folder)


async def run(api: Api, name: str, nodes: dict[str, Any], given: Any, **spec: Any) -> Any:
    document = {"pipeline": name, "nodes": nodes} | spec
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    body = {"pipeline": name, "input": given, "wait_ms": BOUND_S * 1000}
    return await asyncio.to_thread(api.post, "/v1/runs", body)


async def test_map_loop_race_and_graph(api: Api) -> None:
    nodes = {
        "m": ECHO | {"map": {"over": "input.xs", "concurrency": 2}, "with": {"v": "{{ item }}"}},
        "l": ECHO
        | {"needs": ["m"], "loop": {"until": "output.v >= 3"}, "with": {"v": "{{ round }}"}},
        "r": {"type": "race", "branches": {"good": ECHO, "bad": FAIL}, "with": {"v": 9}},
        "g": {
            "type": "graph",
            "with": {"v": "{{ nodes.l.output.v + nodes.r.output.v }}"},
            "nodes": {"x": ECHO | {"with": {"v": "{{ input.v }}"}}},
        },
    }
    end = await run(api, "shapes", nodes, {"xs": [1, 2, 3, 4, 5]}, output={
        "m": "{{ nodes.m.output }}", "g": "{{ nodes.g.output }}"
    })  # fmt: skip
    assert end["status"] == "succeeded"
    assert end["output"] == {"m": [{"v": n} for n in range(1, 6)], "g": {"v": 12}}


async def test_a_sub_pipeline_gives_its_output_and_its_refusal(api: Api) -> None:
    child = {"a": ECHO | {"with": {"v": "{{ input.v }}"}}}
    schema = {"type": "object", "required": ["v"]}
    await run(api, "child", child, {"v": 0}, input=schema)
    call = {"type": "pipeline", "pipeline": "child", "with": {"v": "{{ input.v }}"}}
    end = await run(api, "parent", {"c": call, "z": ECHO | {"needs": ["c"]}}, {"v": 7})
    assert end["output"]["c"] == {"v": 7}
    listed = await asyncio.to_thread(api.get, "/v1/runs", pipeline="child", limit=1)
    shown = await asyncio.to_thread(api.get, f"/v1/runs/{listed['runs'][0]['run_id']}")
    # without the step's capability
    assert shown["parent"] == {"run_id": end["run_id"], "step": "c", "attempt": 1, "depth": 1}
    end = await run(api, "wrong-parent", {"c": call | {"with": {"w": 1}}}, {})
    assert (end["status"], end["error"]["code"]) == ("failed", "invalid_input")
    listed = await asyncio.to_thread(api.get, "/v1/runs", pipeline="child", limit=1)
    assert listed["runs"][0]["status"] == "failed"  # its parent can be told again


async def test_a_sub_pipeline_that_ends_degraded_degrades_its_caller(api: Api) -> None:
    child = {"a": FAIL | {"optional": True}, "b": ECHO | {"with": {"v": 1}}}
    await run(api, "makeshift", child, {})
    end = await run(api, "caller", {"c": {"type": "pipeline", "pipeline": "makeshift"}}, {})
    assert (end["status"], end["output"]) == ("degraded", {"a": None, "b": {"v": 1}})


async def test_what_does_not_fit_between_runs_fails_the_step_and_no_more(api: Api) -> None:
    long = "{{ ('x' * 100000) }}{{ ('x' * 100000) }}"
    wide = ECHO | {"map": {"over": "[1, 2, 3, 4, 5, 6]"}, "with": {"v": long}}
    await run(api, "wide", {"m": wide}, {})
    end = await run(api, "asks-wide", {"c": {"type": "pipeline", "pipeline": "wide"}}, {})
    assert (end["status"], end["error"]["code"]) == ("failed", "payload_too_large")
    given = {"type": "pipeline", "pipeline": "wide", "with": {"v": [long] * 6}}
    end = await run(api, "gives-wide", {"c": given}, {})
    assert (end["status"], end["error"]["code"]) == ("failed", "payload_too_large")


async def test_retry_fallback_and_optional(api: Api) -> None:
    retried = FAIL | {"retry": {"max_attempts": 3, "backoff_ms": 10, "on": ["handler_failed"]}}
    nodes = {
        "f": retried | {"fallback": [{"node": ECHO | {"with": {"v": "{{ error.code }}"}}}]},
        "o": FAIL | {"optional": True},
        "z": ECHO | {"with": {"v": "{{ nodes.f.output.v }}", "o": "{{ nodes.o.output }}"}},
    }
    end = await run(api, "rescued", nodes, {})
    assert (end["status"], end["output"]) == ("degraded", {"v": "handler_failed", "o": None})
    steps = await asyncio.to_thread(api.get, f"/v1/runs/{end['run_id']}/steps")
    assert {s["step"]: s["attempt"] for s in steps["steps"]}["f"] == 3


async def test_an_approval_waits_for_a_person(api: Api) -> None:
    nodes = {"ok": {"type": "approval"}, "z": ECHO | {"needs": ["ok"]}}
    document = {"pipeline": "approved", "nodes": nodes, "slo_ms": 60_000}
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    receipt = await asyncio.to_thread(api.post, "/v1/runs", {"pipeline": "approved", "input": {}})
    path = f"/v1/runs/{receipt['run_id']}"
    answer = {"name": "ok", "payload": {"approved": True}}
    await asyncio.to_thread(api.post, f"{path}/signals", answer)
    async with asyncio.timeout(BOUND_S):
        while (found := await asyncio.to_thread(api.get, path))["status"] == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert found["status"] == "succeeded"
    assert found["output"]["ok"]["approved"] is True


async def test_a_run_that_is_too_slow_expires_and_a_cancelled_one_stops(api: Api) -> None:
    nap = {"type": "python", "handler": "construct_handlers:nap"}
    end = await run(api, "slow", {"n": nap}, {}, slo_ms=300)
    assert end["status"] in ("expired", "failed")
    receipt = await asyncio.to_thread(
        api.post, "/v1/runs", {"pipeline": "slow", "input": {}, "deadline_ms": 60_000}
    )
    path = f"/v1/runs/{receipt['run_id']}"
    await asyncio.to_thread(api.post, f"{path}/cancel", {"reason": "enough"})
    async with asyncio.timeout(BOUND_S):
        while (found := await asyncio.to_thread(api.get, path))["status"] == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert found["status"] == "cancelled"


async def test_a_pipeline_that_names_a_function_off_the_list_is_not_applied(api: Api) -> None:
    shell = {"type": "python", "handler": "subprocess:getoutput"}
    with pytest.raises(ApiRefused) as refused:
        await run(api, "shell", {"a": ECHO | {"fallback": [{"node": shell}]}}, {})
    info = refused.value.info()
    assert info.field == "nodes.a.fallback.0.node.handler"
    assert "HOCKET_HANDLERS" in info.message


async def test_the_built_in_functions_run_without_being_listed(api: Api) -> None:
    builtin = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"v": 4}}
    end = await run(api, "built-in", {"a": builtin}, {})
    assert end["output"] == {"v": 4}
