"""Pipelines as tools: the SDK's client against `hocket mcp`, whose process may go at any time."""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ElicitResult

from hocket.cli.local.platform import Platform
from hocket.cli.terminal import exit_codes

BOUND_S = 40
PIPELINES: list[dict[str, Any]] = [
    {
        "pipeline": "greet",
        "description": "Greet somebody.",
        "input": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "default": "you"}},
        },
        "nodes": {"a": {"type": "python", "handler": "hocket.workers.builtin:echo"}},
        "output": "Hello {{ input.name }}",
    },
    {
        "pipeline": "slow",
        "nodes": {
            "a": {
                "type": "python",
                "handler": "hocket.workers.builtin:sleep",
                "with": {"seconds": "{{ input.seconds }}", "x": "{{ input.x }}"},
            }
        },
    },
    {
        "pipeline": "asks",
        "nodes": {
            "look": {"type": "approval", "prompt": "Send it?"},
            "a": {"type": "python", "handler": "hocket.workers.builtin:echo", "needs": ["look"]},
        },
        "output": "{{ nodes.look.output.note }}",
    },
    {
        "pipeline": "fails",
        "nodes": {
            "a": {
                "type": "python",
                "handler": "hocket.workers.builtin:fail",
                "with": {"reason": "{{ input.reason }}"},
            }
        },
    },
]


@pytest.fixture(scope="module")
async def platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    folder = tmp_path_factory.mktemp("mcp")
    async with Platform(folder / "d") as platform:
        for one in PIPELINES:
            await asyncio.to_thread(platform.api().post, "/v1/pipelines", one)
        yield platform


def command(platform: Platform, *options: str) -> list[str]:
    return ["-m", "hocket.cli", "--data-dir", str(platform.data_dir), "mcp", *options]


@asynccontextmanager
async def serving(
    platform: Platform, *options: str, port: int = 0
) -> AsyncIterator[tuple[str, Any]]:
    """Run `hocket mcp --http` in a process; yield its address and the process."""
    words = command(platform, "--http", "--port", str(port), *options)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            line = (await process.stdout.readline()).decode()
        yield line.split()[-1], process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture(scope="module")
async def url(platform: Platform) -> AsyncIterator[str]:
    async with serving(platform, "--wait-s", "30") as (address, _):
        yield address


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_pipeline_is_a_tool_with_its_input_schema(url: str, mode: Any) -> None:
    async with Client(url, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"greet", "slow", "asks", "fails", "hocket_get_run"} <= set(tools)
        assert tools["greet"].description == "Greet somebody."
        assert tools["greet"].input_schema["required"] == ["name"]
        result = await client.call_tool("greet", {"name": "Ada"})
        assert [block.text for block in result.content] == ["Hello Ada"]  # type: ignore[union-attr]
        assert result.structured_content["status"] == "succeeded"
        assert (await client.call_tool("hocket_nothing", {})).is_error


async def test_what_fails_is_the_tools_error(url: str) -> None:
    async with Client(url) as client:
        failed = await client.call_tool("fails", {"reason": "no stock"})
        assert failed.is_error
        assert "no stock" in failed.content[0].text  # type: ignore[union-attr]
        refused = await client.call_tool("greet", {"name": 3})
        assert refused.is_error
        assert "input.name" in refused.content[0].text  # type: ignore[union-attr]


async def test_over_stdio(platform: Platform) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=command(platform, "--pipelines", "greet"),
        env=dict(os.environ),
    )
    async with Client(server) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "greet" in names
        assert "slow" not in names
        result = await client.call_tool("greet", {"name": "Ada"})
        assert result.content[0].text == "Hello Ada"  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="There is no tool"):
            await client.call_tool("slow", {"seconds": 0})


async def test_names_of_pipelines_that_are_not_there_are_told(platform: Platform) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command(platform, "--pipelines", "greet,gret"),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BOUND_S):
        _, said = await process.communicate()
    assert process.returncode == exit_codes.BAD_INPUT
    told = b" ".join(said.split())
    assert b"names `gret`, which" in told
    assert b"It has: `asks`, `fails`, `greet`, `slow`." in told


async def test_a_client_that_can_ask_gives_a_person_the_decision(url: str) -> None:
    asked: list[str] = []

    async def decide(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approved": True, "note": "go"})

    async with Client(url, elicitation_callback=decide) as client:
        result = await client.call_tool("asks", {})
    assert asked == ["Send it?"]
    assert result.content[0].text == "go"  # type: ignore[union-attr]


async def test_others_are_told_what_a_run_waits_for(url: str) -> None:
    async with Client(url, mode="legacy") as client:
        told = (await client.call_tool("asks", {})).structured_content
        assert told["status"] == "running"
        assert told["approvals"] == [{"step": "look", "prompt": "Send it?"}]
        answer = {"run_id": told["run_id"], "step": "look", "approved": False, "note": "later"}
        await client.call_tool("hocket_answer_approval", answer)
        ended = await until_ended(client, told["run_id"])
        assert ended["error"]["code"] == "approval_refused"


async def until_ended(client: Client, run_id: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        while True:
            told = (await client.call_tool("hocket_get_run", {"run_id": run_id})).structured_content
            if told["status"] != "running":
                return dict(told)


async def test_a_run_outlives_its_client_and_the_server(platform: Platform) -> None:
    meta: Any = {"hocket/idempotency-key": "the-long-one"}
    given = {"seconds": 3, "x": 7}
    async with serving(platform, "--wait-s", "30") as (address, process):
        port = int(address.split(":")[-1].split("/")[0])
        with pytest.raises((MCPError, ExceptionGroup)):  # noqa: PT012
            async with Client(address) as client, asyncio.TaskGroup() as tasks:
                tasks.create_task(client.call_tool("slow", given, meta=meta))
                await until_running(platform, "slow")
                process.kill()
    async with (
        serving(platform, "--wait-s", "30", port=port) as (address, _),
        Client(address) as client,
    ):
        result = await client.call_tool("slow", given, meta=meta)
    assert result.structured_content["output"]["x"] == 7
    listed = await asyncio.to_thread(platform.api().get, "/v1/runs", pipeline="slow")
    assert len(listed["runs"]) == 1


async def until_running(platform: Platform, pipeline: str) -> None:
    async with asyncio.timeout(BOUND_S):
        api = platform.api()
        while not (await asyncio.to_thread(api.get, "/v1/runs", pipeline=pipeline))["runs"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_callers_key_decides_and_foreign_hosts_are_refused(url: str) -> None:
    import httpx2

    async with httpx2.AsyncClient(headers={"authorization": "Bearer hk_wrong"}) as http:
        from mcp.client.streamable_http import streamable_http_client

        async with Client(streamable_http_client(url, http_client=http)) as client:
            refused = await client.call_tool("greet", {"name": "Ada"})
    assert refused.is_error
    async with httpx2.AsyncClient() as http:
        answer = await http.post(
            url,
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            headers={"host": "evil.example", "accept": "application/json, text/event-stream"},
        )
    assert answer.status_code in (403, 421)


async def test_what_the_protocol_adds_to_a_call(platform: Platform, url: str) -> None:
    """Prints it: three milliseconds are what it may be on an idle machine."""
    api = platform.api()
    body = {"pipeline": "greet", "input": {"name": "Ada"}, "wait_ms": 5_000}
    direct, over_mcp = [], []
    async with Client(url) as client:
        await client.call_tool("greet", {"name": "Ada"})
        for _ in range(40):
            began = time.perf_counter()
            await asyncio.to_thread(api.post, "/v1/runs", body)
            direct.append(time.perf_counter() - began)
            began = time.perf_counter()
            await client.call_tool("greet", {"name": "Ada"})
            over_mcp.append(time.perf_counter() - began)
    added_ms = 1000 * (statistics.median(over_mcp) - statistics.median(direct))
    print(f"p50 {1000 * statistics.median(direct):.1f} ms by REST, {added_ms:.1f} ms more over MCP")
    assert added_ms < 1_000


def test_its_page_names_what_there_is() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/how-to/mcp.md").read_text("utf-8")
    from hocket.cli.mcp.runs import BUDGET, DEADLINE, KEY
    from hocket.cli.mcp.tools import RUN_TOOLS

    for name in (KEY, DEADLINE, BUDGET, *(tool.name for tool in RUN_TOOLS)):
        assert f"`{name}`" in page
    assert json.loads(page.split("```json\n")[1].split("```")[0])["mcpServers"]["hocket"]
