"""The end of a stream whose server does not say it, or says something else."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from hocket.gateway.backends import http_endpoint
from hocket.gateway.backends.http_endpoint import HttpEndpoint
from hocket.gateway.backends.protocol import BackendReplyTooLarge
from hocket.gateway.core.protocols.openai_api import Assembly
from support.gateway.routing_rig import request

BOUND_S = 60.0
TEXT, END = (
    {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}
    for text, reason in (("tidal", None), ("", "stop"))
)
USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
CUT = aiohttp.ClientPayloadError("Not enough data")


class Response:
    """A response whose connection, after the events, fails or (without an error) stays open."""

    def __init__(self, *events: dict[str, Any], fails: Exception | None = None) -> None:
        self.headers: dict[str, str] = {"content-encoding": ""}
        self.content = self
        self._left = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
        self._fails = fails

    async def readany(self) -> bytes:
        if self._left:
            return self._left.pop(0)
        if self._fails is not None:
            raise self._fails
        await asyncio.Event().wait()
        raise AssertionError

    def close(self) -> None:
        """Do nothing: there is no connection."""


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpEndpoint]:
    monkeypatch.setattr(http_endpoint, "END_WAIT_S", 0.001)
    made = HttpEndpoint("it", "http://127.0.0.1:9", headers={}, limit=1, now_ms=lambda: 0.0)
    yield made
    await made.close()


async def assembled(endpoint: HttpEndpoint, response: Any) -> Assembly:
    assembly = Assembly(request())
    async with asyncio.timeout(BOUND_S):
        async for event in endpoint.events(response, assembly):
            assembly.add(event)
    return assembly


@pytest.mark.parametrize("fails", [None, CUT, TimeoutError(), ConnectionResetError()], ids=repr)
async def test_an_answer_that_is_whole_and_metered_needs_no_end(
    endpoint: HttpEndpoint, fails: Exception | None
) -> None:
    made = (await assembled(endpoint, Response(TEXT, END, USAGE, fails=fails))).completion()
    assert (made.text, made.input_tokens, made.output_tokens, made.estimated) == (
        "tidal",
        9,
        2,
        False,
    )


async def test_an_answer_that_is_whole_and_not_metered_ends_with_its_connection(
    endpoint: HttpEndpoint,
) -> None:
    made = (await assembled(endpoint, Response(TEXT, END, fails=CUT))).completion()
    assert (made.text, made.estimated) == ("tidal", True)


@pytest.mark.parametrize("events", [(TEXT,), (USAGE, TEXT), ()], ids=["text", "usage", "nothing"])
async def test_an_answer_that_is_not_whole_fails_with_its_connection(
    endpoint: HttpEndpoint, events: tuple[dict[str, Any], ...]
) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        await assembled(endpoint, Response(*events, fails=CUT))


async def test_an_event_in_very_many_lines_is_too_large(
    endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_endpoint, "MAX_EVENT_BYTES", 1_000)
    response = Response()
    response._left = [b"data: {\n"] + [b"data: 1,\n"] * 1_000
    with pytest.raises(BackendReplyTooLarge):
        await assembled(endpoint, response)
