"""Traces of runs on the real platform: the tree of one, and that it stands in its caller's."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from support.handlers.path_handlers import MODEL_S
from support.places import HANDLERS

BOUND_S = 30.0
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
THINK = {"type": "llm", "model": "thinker", "prompt": "?"}
STUMBLE = {
    "type": "python",
    "handler": "path_handlers:stumble",
    "with": {"seconds": 0.01, "name": "trace"},
    "retry": {"max_attempts": 2, "backoff_ms": 20, "on": ["transient"]},
}


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    config = folder / "hocket.yaml"
    models = {"thinker": {"backends": [{"function": "path_handlers:think"}]}}
    config.write_text(yaml.safe_dump({"models": models}))
    async with Platform(
        folder / "d",
        env={"HOCKET_HANDLERS": "path_handlers", "PYTHONPATH": HANDLERS},
        services=("coordinator", "worker", "gateway", "ledger", "admin"),
        worker_types=("python", "llm"),
        config=config,
    ) as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture
def api(platform: Platform) -> Api:
    return platform.api()


async def trace_of(api: Api, run_id: str, calls: int) -> list[dict[str, Any]]:
    """Return the spans of a run's trace once the ledger has booked its calls."""
    async with asyncio.timeout(BOUND_S):
        while True:
            found = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}/trace")
            spans: list[dict[str, Any]] = found["spans"]
            if sum(span["kind"] == "client" for span in spans) >= calls:
                return spans
            await asyncio.sleep(0.02)


async def run(api: Api, nodes: dict[str, Any], **headers: str) -> str:
    document = {"pipeline": "child", "nodes": {"think": THINK}}
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    await asyncio.to_thread(api.post, "/v1/pipelines", {"pipeline": "traced", "nodes": nodes})
    asking = Api(api.url)
    asking._headers = {**api._headers, **headers}
    body = {"pipeline": "traced", "input": {}, "wait_ms": BOUND_S * 1000}
    end = await asyncio.to_thread(asking.post, "/v1/runs", body)
    assert end["status"] == "succeeded"
    return str(end["run_id"])


async def test_a_trace_shows_attempts_calls_and_sub_runs_in_the_caller_s_trace(api: Api) -> None:
    nodes = {
        "try": STUMBLE,
        "sub": {"type": "pipeline", "pipeline": "child", "needs": ["try"]},
    }
    run_id = await run(api, nodes, traceparent=f"00-{TRACE}-{CALLER}-01")

    spans = await trace_of(api, run_id, calls=1)

    shown = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}/trace")
    assert shown["trace_id"] == TRACE
    names = {span["span_id"]: span["name"] for span in spans}
    lines = [(span["name"], names.get(span["parent_id"])) for span in spans]
    assert lines == [
        ("invoke_workflow traced", None),
        ("step try", "invoke_workflow traced"),
        ("queue", "step try"),
        ("execute_tool try", "step try"),
        ("queue", "step try"),
        ("execute_tool try", "step try"),
        ("step sub", "invoke_workflow traced"),
        ("invoke_workflow child", "step sub"),
        ("step think", "invoke_workflow child"),
        ("queue", "step think"),
        ("process think", "step think"),
        ("call thinker", "process think"),
        ("chat thinker", "call thinker"),
    ]
    assert spans[0]["parent_id"] == CALLER
    by_name = {span["name"]: span for span in spans}
    request = by_name["chat thinker"]
    assert MODEL_S * 1000 - 1 <= request["duration_ms"] <= by_name["step think"]["duration_ms"]
    assert request["attributes"]["gen_ai.provider.name"] == "function"
    assert request["attributes"]["gen_ai.usage.output_tokens"] == 1
    tried = [span for span in spans if span["name"] == "execute_tool try"]
    assert [span["status"] for span in tried] == ["error", "unset"]
    # the run below is asked for alone: in the same trace, below the step that began it
    child = by_name["invoke_workflow child"]
    alone = await asyncio.to_thread(api.get, f"/v1/runs/{child['run_id']}/trace")
    assert (alone["trace_id"], alone["spans"][0]) == (TRACE, child)
