"""Replies as NATS messages: those that surely no message can carry are not written."""

from typing import Any

import pytest

from hocket.gateway.api import reply_messages
from hocket.gateway.api.reply_messages import encoded_reply
from hocket.schemas.messages import CallReply

LIMIT = 1024 * 1024
VECTOR = (0.123456789,) * 1_000
LOGPROB = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": [{"token": "b"}] * 5}
TOO_LARGE: dict[str, dict[str, Any]] = {
    "embeddings": {"embeddings": (VECTOR,) * 600},
    "a text": {"text": "tide " * 300_000},
    "an answer of an endpoint": {"openai": {"data": [{"embedding": list(VECTOR)}] * 600}},
    "probabilities": {"openai": {"choices": [{"logprobs": {"content": [LOGPROB] * 20_000}}]}},
    "data": {"data": {"heights": [list(VECTOR)] * 600}},
    "tool calls": {"tool_calls": ({"function": {"arguments": "x" * 2_000_000}},)},
}


def reply_of(**fields: Any) -> CallReply:
    return CallReply(call_id="c", model="m", cost_usd="0.25", **fields)


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_reply_that_is_surely_too_large_is_not_written(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[CallReply] = []

    def seen(reply: CallReply) -> bytes:
        written.append(reply)
        return reply.model_dump_json().encode()

    monkeypatch.setattr(reply_messages, "encoded", seen)
    reply = reply_of(**TOO_LARGE[what])
    told = CallReply.model_validate_json(encoded_reply(reply, LIMIT))
    assert [one.error is None for one in written] == [False]
    assert told.error is not None
    assert (told.error.code, str(told.cost_usd)) == ("reply_too_large", "0.25")
    assert told == reply_of(error=told.error)
    size = len(reply.model_dump_json())
    assert size / 3 < told.error.details["size_bytes"] < size * 3


@pytest.mark.parametrize("content", [{"embeddings": (VECTOR,) * 20}, {"text": "tide"}])
def test_the_limit_is_that_of_the_message(content: dict[str, Any]) -> None:
    reply = reply_of(**content)
    whole = reply.model_dump_json().encode()
    assert encoded_reply(reply, len(whole)) == whole
    told = CallReply.model_validate_json(encoded_reply(reply, len(whole) - 1))
    assert told.error is not None
    assert told.error.details["size_bytes"] == len(whole)


def test_a_reply_that_only_looks_too_large_is_sent() -> None:
    """A sample of its numbers may be of long ones only."""
    reply = reply_of(embeddings=(((0.123456789,) + (0.0,) * 999) * 100,))
    limit = len(reply.model_dump_json())
    assert encoded_reply(reply, limit) == reply.model_dump_json().encode()


def test_a_reply_that_cannot_be_sent_is_an_error() -> None:
    told = CallReply.model_validate_json(encoded_reply(reply_of(text="\ud800"), LIMIT))
    assert (told.error and told.error.code, str(told.cost_usd)) == ("reply_unsendable", "0.25")
