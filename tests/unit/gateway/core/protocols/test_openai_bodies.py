"""What is sent to OpenAI-compatible servers."""

import json
from typing import Any

import pytest

from hocket.gateway.backends.http_endpoint import HttpEndpoint, Reply
from hocket.gateway.backends.openai_http import OpenAIBackend
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.openai_api import outgoing
from hocket.schemas.messages import CallRequest, ChatMessage, OpenAIBody

ANSWER = b'{"choices": [{"message": {"content": "tidal"}, "finish_reason": "stop"}]}'


async def sent(
    monkeypatch: pytest.MonkeyPatch,
    base_url: str,
    pass_fields: frozenset[str] = frozenset(),
    **fields: Any,
) -> dict[str, Any]:
    """Return the body that a call becomes for a server."""
    bodies: list[Any] = []

    async def send(_: HttpEndpoint, __: str, ___: str, content: bytes, **____: Any) -> Reply:
        bodies.append(json.loads(content))
        return Reply({}, ANSWER)

    monkeypatch.setattr(HttpEndpoint, "send", send)
    spec = BackendSpec("b", "openai", "m", base_url=base_url, pass_fields=pass_fields)
    backend = OpenAIBackend(spec, lambda: 0.0)
    call = CallRequest(call_id="c", model="writer", deadline_at_ms=0, **fields)
    try:
        await backend.call(call, timeout_ms=1_000)
    finally:
        await backend.close()
    return dict(bodies[0])


@pytest.mark.parametrize(
    ("base_url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("http://gpu-a:8000/v1", "max_tokens"),
        ("https://notapi.openai.com.example/v1", "max_tokens"),
        ("https://myapi.openai.com/v1", "max_tokens"),
    ],
)
async def test_openai_gets_the_limit_of_an_answer_under_its_new_name(
    monkeypatch: pytest.MonkeyPatch, base_url: str, field: str
) -> None:
    messages = (ChatMessage(role="user", content="How high?"),)
    body = await sent(monkeypatch, base_url, messages=messages, max_tokens=50)
    assert {name: body[name] for name in body if name.startswith("max_")} == {field: 50}


async def test_a_body_that_came_from_outside_keeps_its_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = OpenAIBody(path="chat/completions", body={"messages": [], "max_tokens": 50})
    body = await sent(monkeypatch, "https://api.openai.com/v1", openai=given)
    assert body == {"model": "m", "messages": [], "max_tokens": 50}


def test_options_of_a_stream_do_not_reach_a_server_that_refuses_them() -> None:
    body = {"messages": [], "stream": True, "stream_options": {"include_usage": True}}
    asked = OpenAIBody(path="chat/completions", body=body)
    call = CallRequest(call_id="c", model="writer", deadline_at_ms=0, openai=asked)
    assert "stream_options" not in outgoing(call, "m", stream=True, usage_in_stream=False)
    assert "stream_options" in body


async def test_signed_thinking_reaches_only_servers_that_take_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Strict servers refuse a message with a field that they do not know."""
    thought = {"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "Bonn"}]
    given = OpenAIBody(path="chat/completions", body={"messages": [turns[0], turns[1] | thought]})
    body = await sent(monkeypatch, "http://gpu-a:8000/v1", openai=given)
    assert body["messages"] == turns
    passing = frozenset({"thinking_blocks"})
    body = await sent(monkeypatch, "http://proxy:4000/v1", passing, openai=given)
    assert body["messages"] == [turns[0], turns[1] | thought]
