"""Replies of the Messages API: what they used, and how they end."""

from typing import Any

import pytest
from pydantic_core import to_json

from hocket.gateway.core.protocols.anthropic.reply import (
    MAX_OPEN_BLOCKS,
    EventStream,
    ReplyHead,
    chat_completion,
)
from hocket.gateway.core.protocols.anthropic.request import AnswerTool
from hocket.gateway.core.protocols.openai_api import ReplyUnreadable, usage

HEAD = ReplyHead("c", "m", 0)
WRAPPED = AnswerTool("answer", wrapped=True)
STARTED = {"input_tokens": 100, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 30}


def counts(told: Any) -> tuple[int, int, int, int]:
    used = usage(told)
    return used.input_tokens, used.output_tokens, used.cached_tokens, used.cache_write_tokens


def test_what_was_read_from_a_cache_and_written_to_one_is_input() -> None:
    reply = {"content": [], "usage": {**STARTED, "output_tokens": 7}}
    assert counts(chat_completion(reply, HEAD, None)["usage"]) == (150, 7, 20, 30)


def test_the_counts_of_a_stream_go_on_from_those_that_came_before() -> None:
    stream = EventStream(HEAD, None)
    assert stream.metered is None
    stream.add({"type": "message_start", "message": {"usage": {**STARTED, "output_tokens": 1}}})
    assert stream.metered is not None
    assert counts(stream.metered["usage"]) == (150, 1, 20, 30)
    stream.add({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7}})
    assert counts(stream.metered["usage"]) == (150, 7, 20, 30)


def thinking(told: Any) -> Any:
    return told.get("completion_tokens_details")


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"thinking_tokens": 5}, {"reasoning_tokens": 5}),
        ({"thinking_tokens": 0}, {"reasoning_tokens": 0}),
        ({"thinking_tokens": 9}, {"reasoning_tokens": 7}),
        *(({"thinking_tokens": odd}, None) for odd in (-1, True, "5", None)),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_thinking_is_counted_as_a_part_of_what_was_written(details: Any, expected: Any) -> None:
    used = {**STARTED, "output_tokens": 7, "output_tokens_details": details}
    whole = chat_completion({"content": [], "usage": used}, HEAD, None)["usage"]
    stream = EventStream(HEAD, None)
    stream.add({"type": "message_start", "message": {"usage": {**STARTED, "output_tokens": 1}}})
    stream.add({"type": "message_delta", "delta": {}, "usage": used})
    assert stream.metered is not None
    for told in (whole, stream.metered["usage"]):
        assert thinking(told) == expected
        assert counts(told) == (150, 7, 20, 30)


@pytest.mark.parametrize("told", [None, {}, {"input_tokens": 100}, {"output_tokens": 7}])
def test_a_stream_is_metered_when_it_counts_what_was_written(told: Any) -> None:
    stream = EventStream(HEAD, None)
    stream.add({"type": "message_start", "message": {"usage": {**STARTED, "output_tokens": 1}}})
    assert stream.meters, "what the message began with"
    stream.add({"type": "ping"})
    assert not stream.meters
    stream.add({"type": "message_delta", "delta": {}, "usage": told})
    assert stream.meters is bool(told and "output_tokens" in told)
    stream.add({"type": "message_stop"})
    assert not stream.meters


def test_a_count_may_be_written_with_a_point() -> None:
    reply = {"content": [], "usage": {"input_tokens": 100.0, "output_tokens": 7.0}}
    assert counts(chat_completion(reply, HEAD, None)["usage"]) == (100, 7, 0, 0)


@pytest.mark.parametrize("count", [-1, "7", True, 1.5])
def test_what_is_no_count_is_refused(count: Any) -> None:
    with pytest.raises(ReplyUnreadable):
        chat_completion({"content": [], "usage": {"input_tokens": count}}, HEAD, None)
    stream = EventStream(HEAD, None)
    with pytest.raises(ReplyUnreadable):
        stream.add({"type": "message_delta", "delta": {}, "usage": {"output_tokens": count}})


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "stop"),
        ("new_one", "stop"),
        (None, "stop"),
    ],
)
def test_a_message_without_tool_calls_ends_for_its_own_reason(told: Any, expected: str) -> None:
    reply = {"content": [{"type": "text", "text": "a"}], "stop_reason": told}
    assert chat_completion(reply, HEAD, None)["choices"][0]["finish_reason"] == expected


def test_a_stream_with_too_many_open_blocks_is_refused() -> None:
    stream = EventStream(HEAD, None)

    def open_one(index: int) -> None:
        block = {"type": "text", "text": ""}
        stream.add({"type": "content_block_start", "index": index, "content_block": block})

    for index in range(MAX_OPEN_BLOCKS):
        open_one(index)
    with pytest.raises(ReplyUnreadable, match="blocks are open"):
        open_one(MAX_OPEN_BLOCKS)
    stream.add({"type": "content_block_stop", "index": 0})
    open_one(MAX_OPEN_BLOCKS)


def streamed(written: str, tool: AnswerTool) -> str:
    """Return the text of a stream in which the model wrote this into the answer tool."""
    stream = EventStream(HEAD, tool)
    block = {"type": "tool_use", "id": "t", "name": tool.name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": written}
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ]
    chunks = [chunk for event in events for chunk in stream.add(event)]
    to_json(chunks)  # what cannot be sent on raises
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"value": [1, 2]}', "[1, 2]"),
        ('{"value": null}', "null"),
        ('{"value":[1,2,3,', '{"value":[1,2,3,'),
        ("", ""),
        ("{}", ""),
        ('{"value": "\\ud800"}', '{"value": "\\ud800"}'),
    ],
)
def test_a_wrapped_answer_that_is_cut_off_or_cannot_be_read_is_no_null(
    written: str, expected: str
) -> None:
    assert streamed(written, WRAPPED) == expected


@pytest.mark.parametrize(("arguments", "expected"), [({}, ""), ({"value": None}, "null")])
def test_a_whole_wrapped_answer_that_is_cut_off_is_no_null(
    arguments: dict[str, Any], expected: str
) -> None:
    block = {"type": "tool_use", "id": "t", "name": "answer", "input": arguments}
    made = chat_completion({"content": [block], "stop_reason": "max_tokens"}, HEAD, WRAPPED)
    (choice,) = made["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (expected, "length")


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
def test_arguments_of_tools_that_the_server_runs_belong_to_no_call(kind: str) -> None:
    stream = EventStream(HEAD, None)
    block = {"id": "s", "name": "web_search", "input": {}}
    told: list[Any] = []
    for index, (one, text) in enumerate(((kind, '{"a":1}'), ("tool_use", '{"b":2}'))):
        delta = {"type": "input_json_delta", "partial_json": text}
        for event in (
            {"type": "content_block_start", "content_block": {**block, "type": one}},
            {"type": "content_block_delta", "delta": delta},
            {"type": "content_block_stop"},
        ):
            told += stream.add({**event, "index": index})
    calls = [call for chunk in told for call in chunk["choices"][0]["delta"]["tool_calls"]]
    assert [call["function"]["arguments"] for call in calls] == ["", '{"b":2}']
