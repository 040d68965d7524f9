"""A local server for tests that speaks Anthropic's Messages API, based on the one for OpenAI's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from support.gateway.mock_upstream import Answer, Upstream, running_upstream

USAGE = {
    "input_tokens": 70,
    "cache_read_input_tokens": 20,
    "cache_creation_input_tokens": 30,
    "output_tokens": 7,
}
"""120 tokens in: 20 read from a cache, 30 written to one; 7 out."""


def message(*content: dict[str, Any], stop_reason: str = "end_turn") -> dict[str, Any]:
    """A whole reply."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": USAGE,
    }


def text(said: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": said}


def tool_use(name: str, arguments: dict[str, Any], block_id: str = "toolu_1") -> dict[str, Any]:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": block_id, "name": name, "input": arguments}


def started() -> dict[str, Any]:
    """The event that opens a stream."""
    usage = {**USAGE, "output_tokens": 1}
    return {"type": "message_start", "message": {**message(stop_reason=""), "usage": usage}}


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": opening},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_delta(said: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": said}


def json_delta(part: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": part}


def ended(stop_reason: str = "end_turn") -> list[dict[str, Any]]:
    """The events that end a stream."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]


TIDAL = [
    started(),
    {"type": "ping"},
    *block(0, text(""), text_delta("ti"), text_delta("dal")),
    *ended(),
]
"""The answer `tidal` as a stream."""


class AnthropicUpstream(Upstream):
    """Answers `tidal`, or calls the tool that it is made to call."""

    async def completes(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        if body.get("stream"):
            return await self.streams(*TIDAL)(request, body)  # type: ignore[return-value]
        choice = body.get("tool_choice", {})
        if choice.get("type") == "tool":
            made = message(tool_use(choice["name"], {"port": "Brest"}), stop_reason="tool_use")
        else:
            made = message(text("tidal"))
        return web.json_response(made)

    def streams(self, *events: Any, then: str = "") -> Answer:
        return super().streams(*events, then=then)

    def fails(self, status: int, **headers: str) -> Answer:
        async def answer(_: web.Request, __: dict[str, Any]) -> web.Response:
            error = {"type": "error", "error": {"type": "e", "message": f"no luck ({status})"}}
            return web.json_response(error, status=status, headers=headers)

        return answer


@asynccontextmanager
async def running_anthropic() -> AsyncIterator[AnthropicUpstream]:
    """Serve on a free port of the loopback interface."""
    async with running_upstream(AnthropicUpstream()) as upstream:
        assert isinstance(upstream, AnthropicUpstream)
        yield upstream
