"""What a call of a tool returns for a run that was started."""

from typing import Any

from mcp import Client

from hocket.cli.mcp.server import McpPlatform
from hocket.cli.remote.api import Api
from support.shared.scripted_api import Answer, as_json, refusal, scripted_api


def crowded(asked: str, _body: Any) -> Answer:
    if asked == "POST /v1/runs":
        taken = {"run_id": "r1", "pipeline": "asks", "status": "accepted", "url": "/v1/runs/r1"}
        return as_json(202, taken)
    if asked.startswith("GET /v1/pipelines"):
        return as_json(200, {"pipelines": []})
    return refusal(429, "rate_limited", "Too many requests.")


async def test_a_started_run_is_named_although_its_state_cannot_be_read() -> None:
    with scripted_api(crowded) as api:
        platform = McpPlatform(lambda _key: Api(api.url), (), wait_ms=45_000)
        async with Client(platform.server("1")) as client:
            result = await client.call_tool("asks", {})
    assert not result.is_error
    assert result.structured_content is not None
    assert result.structured_content["run_id"] == "r1"
    (told,) = result.content
    assert told.type == "text"
    assert told.text.startswith("Run r1 was started")
    assert "Too many requests." in told.text


def hidden(asked: str, _body: Any) -> Answer:
    if asked.startswith("GET /v1/pipelines"):
        return as_json(200, {"pipelines": []})
    ended = {"run_id": "r1", "pipeline": "asks", "status": "succeeded", "finished_at": "now"}
    return as_json(200, {**ended, "output": None, "error": None, "withheld": True})


async def test_an_output_that_the_caller_may_not_see_is_not_told_as_none() -> None:
    with scripted_api(hidden) as api:
        platform = McpPlatform(lambda _key: Api(api.url), (), wait_ms=45_000)
        async with Client(platform.server("1")) as client:
            result = await client.call_tool("asks", {})
    assert result.structured_content == {"run_id": "r1", "status": "succeeded", "withheld": True}
    (told,) = result.content
    assert told.type == "text"
    assert "lacks the permission content.read" in told.text
