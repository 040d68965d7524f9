"""What a call of a tool returns for a run that was started."""

import asyncio
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

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
        platform = McpPlatform(lambda _key: Api(api.url), (), wait_ms=300)
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


async def keyed(key: Any) -> tuple[CallToolResult, list[Any]]:
    """Call a tool with an idempotency key; return the result, and what was submitted."""
    with scripted_api(hidden) as api:
        platform = McpPlatform(lambda _key: Api(api.url), (), wait_ms=45_000)
        async with Client(platform.server("1")) as client:
            result = await client.call_tool("asks", {}, meta={"hocket/idempotency-key": key})
    return result, [body for asked, body in api.asked if asked == "POST /v1/runs"]


@pytest.mark.parametrize("key", ["k", ""])
async def test_an_idempotency_key_is_submitted_also_if_it_is_empty(key: str) -> None:
    """An empty one was ignored, and each call was a run of its own: the API refuses it."""
    (body,) = (await keyed(key))[1]
    assert body["idempotency_key"] == key


@pytest.mark.parametrize("key", [0, 7, ["a"], False])
async def test_an_idempotency_key_that_is_not_text_is_refused(key: Any) -> None:
    result, submitted = await keyed(key)
    assert result.is_error
    assert submitted == []
    assert text_of(result).startswith("`hocket/idempotency-key` is not valid: it is not text.")


async def test_an_idempotency_key_that_is_null_is_none() -> None:
    """It was refused, though the other fields of a call may be null."""
    (body,) = (await keyed(None))[1]
    assert "idempotency_key" not in body


RUN_ID = "r" + "0" * 24
UNKNOWN = f"There is no run `{RUN_ID}`."


class Busy:
    """A platform that takes a task, and knows its run after `looks` requests for it. Of the requests for
    the run, those in `refuses` are too many."""

    def __init__(self, looks: float = 0, refuses: tuple[int, ...] = ()) -> None:
        self.cancelled = 0
        self._looks = looks
        self._refuses = refuses
        self._count = 0

    def answer(self, asked: str, _body: Any) -> Answer:
        run = {"run_id": RUN_ID, "pipeline": "asks"}
        if asked == "POST /v1/runs":
            return as_json(202, {**run, "status": "accepted"})
        if asked.endswith("/cancel"):
            self.cancelled += 1
            return as_json(202, run)
        if asked.startswith("GET /v1/pipelines"):
            return as_json(200, {"pipelines": []})
        if asked.startswith("GET /v1/approvals"):
            return as_json(200, {"approvals": []})
        self._count += 1
        if self._count in self._refuses:
            return refusal(429, "too_many_requests", "Too many requests.")
        if self._count <= self._looks:
            return refusal(404, "run_unknown", UNKNOWN)
        if self._count <= self._looks + 2:
            return as_json(200, {**run, "status": "running"})
        return as_json(200, {**run, "status": "succeeded", "output": 7, "finished_at": "now"})

    async def called(self, tool: str, wait_ms: float, run_id: str = RUN_ID) -> CallToolResult:
        """Call a tool of a server that has just been started."""
        with scripted_api(self.answer) as api:
            platform = McpPlatform(lambda _key: Api(api.url), (), wait_ms)
            async with Client(platform.server("1")) as client:
                given = {"run_id": run_id} if tool.startswith("hocket_") else {}
                return await client.call_tool(tool, given)


ENDED = {"run_id": RUN_ID, "status": "succeeded", "output": 7}


@pytest.mark.parametrize("tool", ["asks", "hocket_get_run"])
async def test_a_run_that_begins_late_is_waited_for(tool: str) -> None:
    assert (await Busy(looks=4).called(tool, 20_000)).structured_content == ENDED


@pytest.mark.parametrize("tool", ["asks", "hocket_get_run"])
async def test_one_request_too_many_does_not_end_the_wait_for_a_run(tool: str) -> None:
    busy = Busy(refuses=(1, 3))
    assert (await busy.called(tool, 20_000)).structured_content == ENDED


async def test_a_task_that_has_not_begun_is_not_to_be_started_again() -> None:
    result = await Busy(looks=1_000).called("asks", 300)
    assert not result.is_error
    assert result.structured_content is not None
    assert result.structured_content["status"] == "accepted"
    assert "has not begun yet" in text_of(result)
    assert "do not start it again" in text_of(result)


async def test_an_id_of_a_run_that_is_unknown_may_be_of_one_that_has_not_begun() -> None:
    result = await Busy(looks=1_000).called("hocket_get_run", 300)
    assert result.structured_content == {"run_id": RUN_ID, "status": "unknown"}
    assert not result.is_error
    assert text_of(result).startswith(UNKNOWN)
    assert "do not start it again" in text_of(result)


async def test_what_is_no_id_of_a_run_is_refused_at_once() -> None:
    async with asyncio.timeout(20):
        result = await Busy(looks=1_000).called("hocket_get_run", 600_000, run_id="order-7")
    assert result.is_error
    assert text_of(result) == UNKNOWN


async def test_a_run_that_has_not_begun_is_cancelled_as_it_begins() -> None:
    busy = Busy(looks=3)
    assert not (await busy.called("hocket_cancel_run", 20_000)).is_error
    assert busy.cancelled == 1
    busy = Busy(looks=1_000)
    assert (await busy.called("hocket_cancel_run", 300)).is_error
    assert busy.cancelled == 0


def text_of(result: CallToolResult) -> str:
    (told,) = result.content
    assert told.type == "text"
    return told.text
