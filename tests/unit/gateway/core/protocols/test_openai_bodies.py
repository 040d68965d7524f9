"""What is sent to OpenAI-compatible servers."""

import json
from typing import Any

import pytest

from hocket.gateway.backends.http_endpoint import HttpEndpoint, Reply
from hocket.gateway.backends.openai_http import OpenAIBackend
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.openai_api import LimitField, outgoing
from hocket.gateway.core.protocols.responses.request import chat_body
from hocket.schemas.messages import CallRequest, ChatMessage, OpenAIBody

ANSWER = b'{"choices": [{"message": {"content": "tidal"}, "finish_reason": "stop"}]}'


async def sent(
    monkeypatch: pytest.MonkeyPatch,
    base_url: str,
    pass_fields: frozenset[str] = frozenset(),
    api_version: str = "",
    max_tokens_field: LimitField | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the body that a call becomes for a server."""
    bodies: list[Any] = []

    async def ask(_: HttpEndpoint, __: str, ___: str, content: bytes, **how: Any) -> Any:
        bodies.append(json.loads(content))
        return how["read"](Reply({}, ANSWER))

    monkeypatch.setattr(HttpEndpoint, "ask", ask)
    spec = BackendSpec(
        "b",
        "openai",
        "m",
        base_url=base_url,
        pass_fields=pass_fields,
        api_version=api_version,
        max_tokens_field=max_tokens_field,
    )
    backend = OpenAIBackend(spec, lambda: 0.0)
    call = CallRequest(call_id="c", model="writer", deadline_at_ms=0, **fields)
    try:
        await backend.call(call, timeout_ms=1_000)
    finally:
        await backend.close()
    return dict(bodies[0])


def limits(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in body if name.startswith("max_")}


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
    assert limits(body) == {field: 50}


DEPLOYMENT = "/openai/deployments/gpt-5"


@pytest.mark.parametrize(
    ("base_url", "api_version", "field"),
    [
        (f"https://a.openai.azure.com{DEPLOYMENT}", "2024-10-21", "max_completion_tokens"),
        (f"https://a.openai.azure.com{DEPLOYMENT}", "2024-09-01-preview", "max_completion_tokens"),
        (f"https://a.openai.azure.com{DEPLOYMENT}", "2024-08-01-preview", "max_tokens"),
        ("https://a.openai.azure.com/openai/v1", "", "max_completion_tokens"),
        ("https://a.openai.azure.com/openai/v1", "preview", "max_completion_tokens"),
        (
            f"https://a.cognitiveservices.azure.com{DEPLOYMENT}",
            "2024-10-21",
            "max_completion_tokens",
        ),
        ("https://a.services.ai.azure.com/openai/v1", "", "max_completion_tokens"),
        ("https://a.services.ai.azure.com/models", "2024-05-01-preview", "max_tokens"),
        ("https://openai.azure.com.example/openai/v1", "", "max_tokens"),
    ],
)
async def test_openais_models_at_azure_get_the_limit_under_the_name_that_their_version_takes(
    monkeypatch: pytest.MonkeyPatch, base_url: str, api_version: str, field: str
) -> None:
    """Azure has taken the new name since 2024-09-01-preview, and answered 400 to it before."""
    messages = (ChatMessage(role="user", content="How high?"),)
    body = await sent(
        monkeypatch, base_url, api_version=api_version, messages=messages, max_tokens=50
    )
    assert limits(body) == {field: 50}


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("base_url", ["https://api.openai.com/v1", "http://gpu-a:8000/v1"])
async def test_a_backend_may_say_the_name_of_the_limit(
    monkeypatch: pytest.MonkeyPatch, base_url: str, field: LimitField
) -> None:
    messages = (ChatMessage(role="user", content="How high?"),)
    body = await sent(
        monkeypatch, base_url, max_tokens_field=field, messages=messages, max_tokens=50
    )
    assert limits(body) == {field: 50}


@pytest.mark.parametrize(
    ("base_url", "field"),
    [
        ("https://api.mistral.ai/v1", "max_tokens"),
        ("http://localhost:11434/v1", "max_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://a.openai.azure.com/openai/v1", "max_completion_tokens"),
    ],
)
async def test_the_limit_of_a_response_has_the_name_that_the_server_takes(
    monkeypatch: pytest.MonkeyPatch, base_url: str, field: str
) -> None:
    """Its caller chose none: Mistral answers 422 to the new name, and Ollama writes without a limit."""
    body = chat_body({"model": "writer", "input": "How high?", "max_output_tokens": 50})
    given = OpenAIBody(path="chat/completions", body=body)
    assert limits(await sent(monkeypatch, base_url, openai=given)) == {field: 50}


@pytest.mark.parametrize("limit", ["900000", -1, None])
async def test_no_server_gets_a_limit_that_budgets_do_not_see(
    monkeypatch: pytest.MonkeyPatch, limit: Any
) -> None:
    body = {"messages": [], "max_output_tokens": limit}
    given = OpenAIBody(path="chat/completions", body=body)
    assert limits(await sent(monkeypatch, "http://gpu-a:8000/v1", openai=given)) == {}


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


@pytest.mark.parametrize(
    ("base_url", "passing", "gets"),
    [
        ("https://api.groq.com/openai/v1", (), False),
        ("https://api.cerebras.ai/v1", (), False),
        ("https://api.mistral.ai/v1", (), False),
        ("https://api.mistral.ai/v1", ("reasoning_content",), True),
        ("https://api.mistral.ai.example/v1", (), True),
        ("https://api.deepseek.com", (), True),
        ("http://gpu-a:8000/v1", (), True),
    ],
)
async def test_reasoning_of_earlier_turns_stays_away_from_hosts_that_refuse_it(
    monkeypatch: pytest.MonkeyPatch, base_url: str, passing: tuple[str, ...], gets: bool
) -> None:
    """A conversation that DeepSeek began goes on there."""
    mark = {"reasoning_field": "reasoning_content"}
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}], **mark}
    said = {"role": "assistant", "content": "Bonn"}
    asked = {"model": "m", "input": [{"role": "user", "content": "?"}, thought, said]}
    given = OpenAIBody(path="chat/completions", body=chat_body(asked))
    body = await sent(monkeypatch, base_url, frozenset(passing), openai=given)
    assert body["messages"][1] == (said | {"reasoning_content": "Hm."} if gets else said)


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
