"""Replies of OpenAI's API that hold more, or less, than was asked for."""

from typing import Any

import pytest

from hocket.gateway.core.calls.request_content import MAX_CHOICES
from hocket.gateway.core.protocols.openai_api import (
    MAX_TOOL_CALLS,
    Assembly,
    ReplyUnreadable,
    completion,
)
from hocket.gateway.core.protocols.responses.answer import ResponseHead
from hocket.gateway.core.protocols.responses.stream import ResponseStream
from hocket.gateway.core.protocols.single_chunk import chunk_of
from support.gateway.routing_rig import request


def delta(index: int, **function: Any) -> dict[str, Any]:
    call = {"index": index, "function": function}
    return {"choices": [{"delta": {"tool_calls": [call]}}]}


def test_a_stream_has_a_bound_of_tool_calls_and_the_last_of_them_its_arguments() -> None:
    assembly = Assembly(request())
    for index in range(MAX_TOOL_CALLS):
        assembly.add(delta(index, name="find", arguments="{"))
        assembly.add(delta(index, arguments="}"))
    calls = assembly.completion().tool_calls
    assert [call["function"]["arguments"] for call in calls] == ["{}"] * MAX_TOOL_CALLS
    with pytest.raises(ReplyUnreadable, match="more than"):
        assembly.add(delta(MAX_TOOL_CALLS, name="find"))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_as_many_embeddings_are_expected_as_there_were_texts(count: int) -> None:
    call = request(messages=(), embed=("a", "b"))
    data = [{"index": index, "embedding": [float(index)]} for index in range(count)]
    with pytest.raises(ReplyUnreadable, match=f"{count} embeddings for 2 texts"):
        completion(call, {"data": data})


def test_embeddings_are_in_the_order_of_their_texts() -> None:
    call = request(messages=(), embed=("a", "b"))
    data = [{"index": index, "embedding": [float(index)]} for index in (1, 0)]
    assert completion(call, {"data": data}).embeddings == ((0.0,), (1.0,))


def test_a_choice_whose_index_is_null_is_the_first() -> None:
    assembly, stream = Assembly(request()), ResponseStream(ResponseHead("c", {"model": "m"}, 1))
    events: list[dict[str, Any]] = []
    for text, reason in (("Bo", None), ("nn", "stop")):
        chunk = {"choices": [{"index": None, "delta": {"content": text}, "finish_reason": reason}]}
        assert assembly.add(chunk).text == text
        events += stream.piece(text, chunk)
    assert (assembly.completion().text, assembly.ended) == ("Bonn", True)
    assert [one["delta"] for one in events if "delta" in one] == ["Bo", "nn"]
    messages = [{"index": None, "message": {"content": text}} for text in ("a", "b")]
    assert [one["index"] for one in chunk_of({"choices": messages})["choices"]] == [0, 1]


@pytest.mark.parametrize("index", [0, "0", None, [7]])
def test_tool_calls_of_a_whole_reply_are_told_apart_whatever_index_they_have(index: Any) -> None:
    calls = [{"index": index, "id": "", "function": {"name": name}} for name in ("f", "g")]
    (choice,) = chunk_of({"choices": [{"message": {"tool_calls": calls}}]})["choices"]
    assert [call["index"] for call in choice["delta"]["tool_calls"]] == [0, 1]


def choice(index: int, text: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": reason}]}


FIRST = (choice(0, "high"), choice(1, "lo"), choice(0, "", "stop"))
"""A stream of two choices, up to the end of the first."""
USAGE: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}


@pytest.mark.parametrize(
    ("chunks", "ended"),
    [
        (FIRST, False),
        ((choice(0, "high", "stop"),), False),
        ((*FIRST, choice(1, "w", "stop")), True),
        ((choice(0, "high", "stop"), USAGE), True),
        ((choice(0, "high", "stop"), USAGE, choice(1, "lo")), False),
        ((*FIRST, choice(1, "w", "stop"), choice(2, "?")), False),
    ],
)
def test_a_stream_is_whole_when_all_its_choices_are(
    chunks: tuple[dict[str, Any], ...], ended: bool
) -> None:
    body = {"model": "m", "messages": [], "n": 2}
    assembly = Assembly(request(openai={"path": "chat/completions", "body": body}))
    for chunk in chunks:
        assembly.add(chunk)
    assert assembly.ended is ended
    assembly.close()
    assert assembly.ended


@pytest.mark.parametrize(
    ("path", "body", "answers"),
    [
        ("completions", {"prompt": ["a", "b"], "n": 2}, 4),
        ("completions", {"prompt": "a", "n": 1, "best_of": 3}, 1),
        ("chat/completions", {"messages": []}, 1),
    ],
)
def test_a_stream_has_as_many_choices_as_its_call_gets(
    path: str, body: dict[str, Any], answers: int
) -> None:
    assembly = Assembly(request(openai={"path": path, "body": {"model": "m", **body}}))
    for index in range(answers):
        assert not assembly.ended
        assembly.add(choice(index, "", "stop"))
    assert assembly.ended


def test_a_choice_that_says_more_after_its_end_stays_ended() -> None:
    assembly = Assembly(request())
    assembly.add(choice(0, "high", "stop"))
    assembly.add(choice(0, " "))
    assert assembly.ended


def test_a_refusal_is_the_answer_of_a_model_that_was_to_answer_by_a_schema() -> None:
    call = request(response_schema={"type": "object"})
    said = {"role": "assistant", "content": None, "refusal": "I can't help with that."}
    whole = completion(call, {"choices": [{"message": said, "finish_reason": "stop"}]})
    assembly = Assembly(call)
    pieces = [
        assembly.add({"choices": [{"delta": {"content": None, "refusal": text}}]})
        for text in ("I can't ", "help with that.")
    ]
    assembly.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    for made in (whole, assembly.completion()):
        assert (made.text, made.data) == ("I can't help with that.", None)
        assert made.finish_reason == "content_filter"
    assert "".join(piece.text for piece in pieces) == whole.text


def test_what_a_provider_adds_to_a_tool_call_is_kept_for_the_next_turn() -> None:
    """Gemini 3 refuses a turn whose calls come back without the signatures that they had."""
    signed = {"extra_content": {"google": {"thought_signature": "s"}}}
    assembly = Assembly(request())
    call = {"index": 0, "id": "t", "function": {"name": "find", "arguments": "{"}, **signed}
    more = {"index": 0, "function": {"arguments": "}"}}
    for one in (call, more):
        assembly.add({"choices": [{"delta": {"tool_calls": [one]}}]})
    assert assembly.completion().tool_calls == (
        {
            "id": "t",
            "type": "function",
            "function": {"name": "find", "arguments": "{}"},
            **signed,
        },
    )


def test_a_legacy_function_call_without_usage_is_estimated_by_its_text() -> None:
    message = {"content": None, "function_call": {"name": "find", "arguments": '{"what": "tide"}'}}
    choice = {"message": message, "finish_reason": "function_call"}
    made = completion(request(), {"choices": [choice]})
    assert (made.estimated, made.output_tokens > 8) == (True, True)


def test_arguments_that_come_as_an_object_are_text_in_a_call() -> None:
    assembly = Assembly(request())
    for index, arguments in enumerate(({"port": "Brest"}, {}, None)):
        assembly.add(delta(index, name="find", arguments=arguments))
    calls = assembly.completion().tool_calls
    assert [call["function"]["arguments"] for call in calls] == ['{"port":"Brest"}', "{}", ""]


@pytest.mark.parametrize("prompts", [1, 200])
def test_a_chunk_has_no_more_choices_than_a_call_may_ask_for(prompts: int) -> None:
    """A hundred thousand of them in one event held up all other calls for a quarter of a second."""
    body = {"model": "m", "prompt": ["x"] * prompts}
    assembly = Assembly(request(openai={"path": "completions", "body": body}))
    most = max(MAX_CHOICES, prompts)
    assembly.add({"choices": [{"index": 0, "text": "a"}] * most})
    with pytest.raises(ReplyUnreadable, match="choices"):
        assembly.add({"choices": [{"index": 0, "text": "a"}] * (most + 1)})
    assert assembly.completion().text == "a" * most


def test_a_chunk_has_a_bound_of_pieces_of_tool_calls() -> None:
    assembly = Assembly(request())
    (choice,) = delta(0, arguments="a")["choices"]
    calls = choice["delta"]["tool_calls"] * (MAX_TOOL_CALLS // 2)
    choices = [{"delta": {"tool_calls": calls}}] * 2
    for _ in range(2):
        assembly.add({"choices": choices})
    (call,) = assembly.completion().tool_calls
    assert call["function"]["arguments"] == "a" * 2 * MAX_TOOL_CALLS
    with pytest.raises(ReplyUnreadable, match="tool_calls"):
        assembly.add({"choices": [*choices, choice]})


@pytest.mark.parametrize("number", ["NaN", "1e39", "-1e39", "1e400"])
def test_an_embedding_holds_numbers_that_every_caller_can_get(number: str) -> None:
    data = [{"index": 0, "embedding": [0.5, float(number)]}]
    with pytest.raises(ReplyUnreadable, match="32 bits"):
        completion(request(messages=(), embed=("a",)), {"data": data})
