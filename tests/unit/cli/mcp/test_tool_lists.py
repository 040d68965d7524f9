"""What a client gets that asks for the tools while something is in the way."""

from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from hocket.cli.mcp.server import McpPlatform
from hocket.cli.remote.api import Api
from hocket.cli.terminal.errors import KeyNeeded
from support.shared.scripted_api import Answer, as_json, refusal, scripted_api


def changing(asked: str, _body: Any) -> Answer:
    if asked.startswith("GET /v1/pipelines?"):
        names = ("first", "gone", "last")
        return as_json(
            200, {"pipelines": [{"pipeline": name, "active_version": 1} for name in names]}
        )
    if "/gone" in asked:
        return refusal(404, "pipeline_unknown", "There is no pipeline `gone`.")
    return as_json(200, {"spec": {}})


async def test_a_pipeline_that_goes_away_meanwhile_is_left_out() -> None:
    with scripted_api(changing) as api:
        platform = McpPlatform(lambda _key: Api(api.url), (), wait_ms=1_000)
        async with Client(platform.server("1")) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
    assert [name for name in names if not name.startswith("hocket_")] == ["first", "last"]


def with_a_newer_version(asked: str, _body: Any) -> Answer:
    if asked.startswith("GET /v1/pipelines?"):
        one = {"pipeline": "order", "version": 2, "active_version": 1}
        return as_json(200, {"pipelines": [one]})
    version = asked.partition("version=")[2]
    return as_json(200, {"spec": {"description": version, "input": {"required": [version]}}})


async def test_a_tool_is_described_by_the_active_version_which_its_calls_run() -> None:
    with scripted_api(with_a_newer_version) as api:
        platform = McpPlatform(lambda _key: Api(api.url), (), wait_ms=1_000)
        async with Client(platform.server("1")) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["order"].description == "1"
    assert tools["order"].input_schema == {"type": "object", "required": ["1"]}


def away() -> Api:
    return Api("http://127.0.0.1:9")


def without_a_key() -> Api:
    raise KeyNeeded


@pytest.mark.parametrize(("api", "code"), [(away, INTERNAL_ERROR), (without_a_key, INVALID_PARAMS)])
async def test_the_code_tells_whether_the_platform_fails(api: Callable[[], Api], code: int) -> None:
    platform = McpPlatform(lambda _key: api(), (), wait_ms=1_000)
    async with Client(platform.server("1")) as client:
        with pytest.raises(MCPError) as failed:
            await client.list_tools()
    assert failed.value.code == code
