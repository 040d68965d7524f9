"""Replies as answers of the HTTP door, without a network."""

import json

import pytest

from hocket.gateway.api.http.answers import CompletionAnswers
from hocket.gateway.backends.protocol import Chunk
from hocket.gateway.core.protocols.openai_api import CHAT
from hocket.schemas.messages import CallReply
from hocket.schemas.openai.answers import ResponseOptions


def test_a_stream_without_chunks_comes_in_one_piece() -> None:
    """A call that joined another one hears nothing while it is made."""
    streaming = CompletionAnswers(ResponseOptions(CHAT, "m", "c", 1, wants_usage=True))
    reply = CallReply(call_id="c", text="tidal", input_tokens=3, output_tokens=2)
    *events, done = streaming.end(reply).decode().strip().split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert done == "data: [DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "tidal"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 5


def test_a_stream_without_chunks_has_all_of_its_reply() -> None:
    """The first stage of a cascade streams nothing; its answer may hold more than a text."""
    messages = [{"content": None, "refusal": "No."}, {"content": "tidal", "reasoning": "Hm."}]
    choices = [
        {"index": at, "message": one, "finish_reason": "stop"} for at, one in enumerate(messages)
    ]
    body = {"id": "x", "object": "chat.completion", "model": "m-1", "choices": choices, "usage": {}}
    streaming = CompletionAnswers(ResponseOptions(CHAT, "m", "c", 1))
    event, done = streaming.end(CallReply(call_id="c", openai=body)).decode().strip().split("\n\n")
    told = json.loads(event.removeprefix("data: "))
    assert [choice["delta"] for choice in told["choices"]] == messages
    assert (told["model"], "usage" in told, done) == ("m", False, "data: [DONE]")


def test_usage_that_nobody_asked_for_is_left_out() -> None:
    streaming = CompletionAnswers(ResponseOptions(CHAT, "m", "c", 1))
    piece = {"choices": [{"delta": {"content": "x"}}], "usage": None, "model": "m-1"}
    sent = streaming.chunk(Chunk("x", openai=piece)).decode()
    assert json.loads(sent.removeprefix("data: ")) == {
        "choices": [{"delta": {"content": "x"}}],
        "model": "m",
    }
    assert streaming.chunk(Chunk("", openai={"choices": [], "usage": {}}, is_usage=True)) == b""
    assert streaming.end(CallReply(call_id="c")) == b"data: [DONE]\n\n"


def test_usage_that_came_with_the_last_content_is_not_sent_again() -> None:
    """Clients that add up the usage of a stream would count it twice."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    reply = CallReply(call_id="c", text="x", input_tokens=3, output_tokens=2)
    for given, sent_later in ((usage, 0), (None, 1), ({}, 1)):
        streaming = CompletionAnswers(ResponseOptions(CHAT, "m", "c", 1, wants_usage=True))
        for counted in (usage, given):
            piece = {"choices": [{"delta": {"content": "x"}}], "usage": counted}
            streaming.chunk(Chunk("x", openai=piece))
        assert streaming.end(reply).count(b'"usage"') == sent_later


@pytest.mark.parametrize(("text", "sent_later"), [("x", 1), ("", 0)])
def test_usage_that_came_before_the_text_is_followed_by_that_of_the_answer(
    text: str, sent_later: int
) -> None:
    reply = CallReply(call_id="c", text="x", input_tokens=3, output_tokens=2)
    streaming = CompletionAnswers(ResponseOptions(CHAT, "m", "c", 1, wants_usage=True))
    counted = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 0}}
    streaming.chunk(Chunk("", openai=counted, is_usage=True))
    piece = {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}
    streaming.chunk(Chunk(text, openai=piece))
    assert streaming.end(reply).count(b'"usage"') == sent_later
