"""Replies as NATS messages: those that are several times too large for one are not written."""

from typing import Any

import pytest

from hocket.gateway.api import reply_messages
from hocket.gateway.api.reply_messages import encoded_reply
from hocket.schemas.messages import CallReply

LIMIT = 1024 * 1024
VECTOR = (0.123456789,) * 1_000
TOO_LARGE: dict[str, dict[str, Any]] = {
    "embeddings": {"embeddings": (VECTOR,) * 600},
    "a text": {"text": "tide " * 300_000},
    "an answer of an endpoint": {"openai": {"data": [{"embedding": list(VECTOR)}] * 600}},
    "very many values": {"data": [None] * 600_000},
    "data": {"data": {"heights": [list(VECTOR)] * 600}},
    "tool calls": {"tool_calls": ({"function": {"arguments": "x" * 2_000_000}},)},
}


def reply_of(**fields: Any) -> CallReply:
    return CallReply(call_id="c", model="m", cost_usd="0.25", **fields)


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_reply_that_is_much_too_large_is_not_written(
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
    assert LIMIT < told.error.details["size_bytes"] <= len(reply.model_dump_json())


@pytest.mark.parametrize(
    "content",
    [
        {"embeddings": (VECTOR,) * 20},
        {"embeddings": ((0.0,) * 1_000,) * 20},
        {"text": "tide"},
        {"data": [{"a": 1, "b": "xy"}] * 5_000},
    ],
    ids=["embeddings", "short numbers", "a text", "small objects"],
)
def test_the_limit_is_that_of_the_message(content: dict[str, Any]) -> None:
    reply = reply_of(**content)
    whole = reply.model_dump_json().encode()
    assert encoded_reply(reply, len(whole)) == whole
    told = CallReply.model_validate_json(encoded_reply(reply, len(whole) - 1))
    assert told.error is not None
    assert told.error.details["size_bytes"] == len(whole)


def test_a_reply_that_cannot_be_sent_is_an_error() -> None:
    told = CallReply.model_validate_json(encoded_reply(reply_of(text="\ud800"), LIMIT))
    assert (told.error and told.error.code, str(told.cost_usd)) == ("reply_unsendable", "0.25")
