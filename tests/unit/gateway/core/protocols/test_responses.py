"""The Responses API upon chat completions: what goes in, and events that hold whatever backends say."""

import base64
import time
from collections.abc import Sequence
from typing import Any

import pytest

from hocket.gateway.core.calls.body_fields import unusual_fields
from hocket.gateway.core.calls.request_content import max_tokens
from hocket.gateway.core.protocols.openai_api import plain
from hocket.gateway.core.protocols.responses import request
from hocket.gateway.core.protocols.responses.answer import ResponseHead, whole
from hocket.gateway.core.protocols.responses.request import chat_body
from hocket.gateway.core.protocols.responses.stream import MAX_ITEMS, ResponseStream
from hocket.gateway.core.protocols.responses.thinking import sealed, unsealed
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import CallReply, CallRequest, OpenAIBody

HEAD = ResponseHead("http:c-1", {"model": "m", "input": "x"}, 1)
THOUGHT = [{"type": "thinking", "thinking": "Hm. é", "signature": "s"}]
BOUND_S = 20.0


def test_a_conversation_of_items_becomes_one_of_turns() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
    file = {"type": "input_file", "file_data": "data:application/pdf;base64,BB", "filename": "a"}
    chat = chat_body(
        {
            "model": "m",
            "instructions": "Be brief.",
            "input": [
                {"role": "developer", "content": "No jokes."},
                {"role": "user", "content": [{"type": "input_text", "text": "See"}, image, file]},
                {"type": "reasoning", "summary": [], "encrypted_content": sealed(THOUGHT)},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "Wa"},
                        {"type": "output_text", "text": "it."},
                    ],
                },
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "[]"},
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
                {
                    "type": "function_call_output",
                    "call_id": "c2",
                    "output": [{"type": "input_text", "text": "2"}],
                },
            ],
            "tools": [{"type": "function", "name": "f", "parameters": {}, "description": None}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {
                "format": {"type": "json_schema", "name": "n", "schema": {}},
                "verbosity": "low",
            },
            "reasoning": {"effort": "low", "summary": "auto"},
            "top_p": 0.5,
            "top_k": None,
            "stream": True,
            "metadata": {"a": "b"},
            "store": False,
        }
    )
    function = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    other = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "[]"}}
    assert chat == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "No jokes."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {
                        "type": "image_url",
                        "image_url": {"url": "data:image/png;base64,AA", "detail": "low"},
                    },
                    {
                        "type": "file",
                        "file": {"file_data": "data:application/pdf;base64,BB", "filename": "a"},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": "Wait.",
                "thinking_blocks": THOUGHT,
                "tool_calls": [function, other],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "tool", "tool_call_id": "c2", "content": "2"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "verbosity": "low",
        "reasoning_effort": "low",
        "top_p": 0.5,
        "stream": True,
    }


def test_the_limit_of_an_answer_counts_before_its_backend_is_known() -> None:
    chat = chat_body({"model": "m", "input": "x", "max_output_tokens": 50.0})
    call = CallRequest(
        call_id="c",
        model="m",
        openai=OpenAIBody(path="chat/completions", body=chat),
        deadline_at_ms=0,
    )
    assert (max_tokens(call), plain(call).max_tokens) == (50, 50)
    assert unusual_fields(call) == frozenset()


def test_a_choice_of_tools_goes_nowhere_without_tools() -> None:
    chat = chat_body(
        {"model": "m", "input": "x", "tool_choice": "auto", "parallel_tool_calls": True}
    )
    assert chat == {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def test_thoughts_come_back_as_they_were_and_strange_ones_not_at_all() -> None:
    assert unsealed(sealed(THOUGHT)) == THOUGHT
    deep = sealed(THOUGHT)[:-4]
    for strange in (None, 5, "", "gAAAA...", "thinking:%", deep, sealed([1])):  # type: ignore[list-item]
        assert unsealed(strange) == []


def test_thoughts_that_could_not_go_on_are_none() -> None:
    for packed in (b'[{"a":"\\ud800"}]', b'[{"a":' + b"[" * 900 + b"]" * 900 + b"}]", b"\xff"):
        assert unsealed("thinking:" + base64.b64encode(packed).decode()) == []


@pytest.mark.parametrize("items", [1, 4])
def test_thoughts_are_weighed_although_they_are_packed(items: int) -> None:
    """Lists of nothing take thirtyfold once they are read, and base64 hides them from whoever counts."""
    packed = b'[{"a":[' + b"[]," * (120_000 // items) + b"[]]}]"
    thought = {
        "type": "reasoning",
        "encrypted_content": "thinking:" + base64.b64encode(packed).decode(),
    }
    said = {"role": "assistant", "content": "Yes."}
    with pytest.raises(InvalidInput, match="hold more than 200000 values"):
        chat_body({"model": "m", "input": [thought, said] * items})
    chat_body({"model": "m", "input": [thought, said] * (items // 2)})


def reply(**fields: Any) -> CallReply:
    return CallReply(call_id="http:c-1", **fields)


def test_what_a_model_thought_and_refused_are_items_of_their_own() -> None:
    message = {"reasoning_content": "Hm.", "thinking_blocks": THOUGHT, "refusal": "No."}
    openai = {"choices": [{"message": message, "finish_reason": "stop"}]}
    made = whole(HEAD, reply(openai=openai, finish_reason="content_filter"))
    thought, said = made["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert unsealed(thought["encrypted_content"]) == THOUGHT
    assert said["content"] == [{"type": "refusal", "refusal": "No."}]
    assert (made["status"], made["incomplete_details"]) == ("completed", None)
    (last,) = list(ResponseStream(HEAD).end(reply(openai=openai, finish_reason="content_filter")))[
        -1:
    ]
    assert last["type"] == "response.completed", "of a call that another request made"


def ends(*deltas: dict[str, Any], reason: str) -> dict[str, Any]:
    """Return the response that a stream ends with; a call that was refused counts as filtered."""
    stream = ResponseStream(HEAD)
    for delta in deltas:
        list(stream.piece("", chunk(**delta)))
    list(stream.piece("", {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
    filtered = any(delta.get("refusal") for delta in deltas)
    last = list(stream.end(reply(finish_reason="content_filter" if filtered else reason)))[-1]
    assert last["type"] == f"response.{last['response']['status']}"
    made: dict[str, Any] = last["response"]
    return made


def completes(message: dict[str, Any], reason: str) -> dict[str, Any]:
    """Return the response to a call that is answered whole."""
    openai = {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    calls = tuple(message.get("tool_calls", ()))
    text = message.get("content") or ""
    given = reply(openai=openai, finish_reason=reason, text=text, tool_calls=calls)
    return whole(HEAD, given)


def called(call_id: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_a_refusal_is_an_answer_unless_its_backend_says_that_it_filtered_it() -> None:
    for reason, status, details in (
        ("stop", "completed", None),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ):
        for made in (
            ends({"refusal": "No."}, reason=reason),
            completes({"refusal": "No."}, reason),
        ):
            assert (made["status"], made["incomplete_details"]) == (status, details)
            (said,) = made["output"]
            assert said["content"] == [{"type": "refusal", "refusal": "No."}]
            assert said["status"] == status


def test_the_item_in_which_an_answer_was_cut_off_is_incomplete() -> None:
    first, second = called("a", "{}"), called("b", '{"port": "Br')
    calls = [first | {"index": 0}, second | {"index": 1}]
    streamed = ends({"content": "See"}, {"tool_calls": calls}, reason="length")
    at_once = completes({"content": "See", "tool_calls": [first, second]}, "length")
    for made in (streamed, at_once):
        assert made["incomplete_details"] == {"reason": "max_output_tokens"}
        assert [item["status"] for item in made["output"]] == [
            "completed",
            "completed",
            "incomplete",
        ]
    whole_ones = completes({"content": "See", "tool_calls": [first]}, "tool_calls")
    assert {item["status"] for item in whole_ones["output"]} == {"completed"}


@pytest.mark.parametrize(("reason", "status"), [("length", "incomplete"), ("stop", "completed")])
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_an_answer_that_is_nothing_but_reasoning_is_one_item(
    name: str, reason: str, status: str
) -> None:
    streamed = ends({name: "Hm."}, reason=reason)
    at_once = completes({"content": None, name: "Hm."}, reason)
    from_reply = list(
        ResponseStream(HEAD).end(
            reply(
                openai={"choices": [{"message": {name: "Hm."}, "finish_reason": reason}]},
                finish_reason=reason,
            )
        )
    )[-1]["response"]
    for made in (streamed, at_once, from_reply):
        (item,) = made["output"]
        assert (item["type"], item["status"], made["status"]) == ("reasoning", status, status)


def test_nothing_of_a_response_that_failed_is_in_progress() -> None:
    stream = ResponseStream(HEAD)
    list(stream.piece("", chunk(reasoning_content="Hm.")))
    list(stream.piece("", chunk(content="Se")))
    *_, last = stream.failed({"code": "c", "message": "m", "param": None, "type": "t"})
    assert [item["status"] for item in last["response"]["output"]] == ["completed", "incomplete"]


def turns(*items: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of the assistant in a conversation that ends with these items."""
    given = [{"role": "user", "content": "How high is the tide?"}, *items]
    messages = chat_body({"model": "m", "input": given})["messages"]
    return [message for message in messages if message["role"] == "assistant"]


OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "6 m"}


@pytest.mark.parametrize("content", [None, "Let me see."])
def test_reasoning_goes_back_with_the_turn_that_it_begins(content: str | None) -> None:
    """DeepSeek refuses a turn with calls of tools whose reasoning does not come back."""
    said = {"content": content} if content else {}
    delta = {**said, "tool_calls": [called("a", "{}") | {"index": 0}]}
    streamed = ends({"reasoning_content": "H"}, {"reasoning_content": "m."}, delta, reason="stop")
    message = {"reasoning_content": "Hm.", **said, "tool_calls": [called("a", "{}")]}
    for made in (streamed, completes(message, "tool_calls")):
        assert turns(*made["output"], OUTPUT) == [
            {
                "role": "assistant",
                "content": content,
                "reasoning_content": "Hm.",
                "tool_calls": [called("a", "{}")],
            }
        ]


def test_only_reasoning_that_came_as_reasoning_content_goes_back_as_such() -> None:
    """Cerebras and Groq call it `reasoning`, and refuse a turn with `reasoning_content`."""
    delta = {"tool_calls": [called("a", "{}") | {"index": 0}]}
    streamed = ends({"reasoning": "H"}, {"reasoning": "m."}, delta, reason="stop")
    at_once = completes({"reasoning": "Hm.", "tool_calls": [called("a", "{}")]}, "stop")
    for made in (streamed, at_once):
        assert made["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
        (turn,) = turns(*made["output"], OUTPUT)
        assert "reasoning_content" not in turn
        assert "reasoning_field" not in made["output"][0]
    both = completes({"reasoning": "Hm.", "reasoning_content": "Hm.", "content": "6 m"}, "stop")
    assert turns(*both["output"])[0]["reasoning_content"] == "Hm."
    assert both["output"][0]["reasoning_field"] == "reasoning_content"


SAID = {"role": "assistant", "content": "6 m"}
UNMARKED = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}


@pytest.mark.parametrize(
    "mark", [{}, *({"reasoning_field": one} for one in (None, "reasoning", 5))]
)
def test_reasoning_that_does_not_say_where_it_came_from_stays_away(mark: dict[str, Any]) -> None:
    """So says an item of a former release, or of a client that drops fields which it does not know."""
    assert turns(UNMARKED | mark, SAID) == [SAID]


def thought(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    mark = {"reasoning_field": "reasoning_content"}
    return {"type": "reasoning", "content": content, **mark, **fields}


@pytest.mark.parametrize("role", ["user", "developer"])
def test_reasoning_goes_not_beyond_what_somebody_else_says(role: str) -> None:
    other = {"role": role, "content": "Wait."}
    assert turns(thought("Hm."), other, SAID) == [SAID]
    assert turns(thought("Hm."), other, thought("Ah."), SAID) == [
        SAID | {"reasoning_content": "Ah."}
    ]


def test_reasoning_goes_beyond_the_output_of_a_call_that_is_not_known() -> None:
    assert turns(thought("Hm."), OUTPUT, SAID) == [SAID | {"reasoning_content": "Hm."}]


def test_signed_thinking_goes_back_alone() -> None:
    (turn,) = turns(thought("Hm.", encrypted_content=sealed(THOUGHT)), SAID)
    assert turn == SAID | {"thinking_blocks": THOUGHT}


def test_all_reasoning_about_calls_that_are_answered_together_goes_back_with_them() -> None:
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    said = {"role": "assistant", "content": "Wait."}
    (turn,) = turns(thought("One."), call, thought("Two."), said, OUTPUT)
    assert (turn["reasoning_content"], turn["content"]) == ("One.\n\nTwo.", "Wait.")
    first, second = turns(thought("One."), call, OUTPUT, thought("Two."), thought("3."), said)
    assert (first["reasoning_content"], second["reasoning_content"]) == ("One.", "Two.\n\n3.")


@pytest.mark.parametrize(
    "content", [None, "Hm.", 5, {}, [5, {"type": "reasoning_text", "text": 5}]]
)
def test_reasoning_that_makes_no_sense_is_none(content: Any) -> None:
    assert turns(thought("") | {"content": content}, SAID) == [SAID]


def test_a_reply_without_anything_is_an_empty_message() -> None:
    (item,) = whole(HEAD, reply())["output"]
    assert item["content"][0]["text"] == ""
    events = list(ResponseStream(HEAD).end(reply()))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == ""


def test_pieces_of_a_backend_without_chunks_and_its_calls_at_the_end_are_all_told() -> None:
    stream = ResponseStream(HEAD)
    events = [*stream.piece("ti", None), *stream.piece("", None), *stream.piece("dal", None)]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    events += stream.end(reply(text="tidal", tool_calls=(call, {"function": None})))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    text, first, second = events[-1]["response"]["output"]
    assert text["content"][0]["text"] == "tidal"
    assert (first["call_id"], first["name"], first["arguments"]) == ("c", "f", "{}")
    assert (second["call_id"], second["name"]) == ("call_http_c_1_1", "")


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def test_chunks_that_make_no_sense_are_passed_over() -> None:
    stream = ResponseStream(HEAD)
    strange: list[Any] = [
        {},
        {"choices": 5},
        {"choices": [5, {"delta": 5}, {"index": 1, "delta": {"content": "other"}}]},
        chunk(content=5, refusal={}, reasoning_content=[], thinking_blocks={"a": 1}),
        chunk(tool_calls={"a": 1}),
        chunk(tool_calls=[5, {"index": "x", "function": {"name": 5, "arguments": 7}}]),
    ]
    events = [event for one in strange for event in stream.piece("", one)]
    events += stream.end(reply())
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "", "")


def test_parallel_calls_under_one_index_are_items_of_their_own() -> None:
    stream = ResponseStream(HEAD)
    for n, port in enumerate(("Brest", "Calais")):
        function = {"name": "tide", "arguments": port}
        list(
            stream.piece("", chunk(tool_calls=[{"index": 0, "id": f"t{n}", "function": function}]))
        )
    events = list(stream.end(reply()))
    output = events[-1]["response"]["output"]
    assert [(one["call_id"], one["arguments"]) for one in output] == [
        ("t0", "Brest"),
        ("t1", "Calais"),
    ]
    assert len({one["id"] for one in output}) == 2


def test_thoughts_and_text_by_turns_become_no_more_items_than_are_told_apart() -> None:
    stream = ResponseStream(HEAD)
    began = time.monotonic()
    for _ in range(20_000):
        for _event in stream.piece("", chunk(reasoning_content="h")):
            pass
        for _event in stream.piece("", chunk(content="t")):
            pass
    events = list(stream.end(reply()))
    output = events[-1]["response"]["output"]
    assert len(output) <= MAX_ITEMS + 2
    said = "".join(part["text"] for item in output for part in item["content"])
    assert (said.count("h"), said.count("t")) == (20_000, 20_000), "nothing is lost"
    assert time.monotonic() - began < BOUND_S


def test_text_that_comes_in_parts_streams_as_text() -> None:
    stream = ResponseStream(HEAD)
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    for content in ([thought], [{"type": "text", "text": "ti"}], "dal"):
        list(stream.piece("", chunk(content=content)))
    events = list(stream.end(reply(text="tidal")))
    (item,) = events[-1]["response"]["output"]
    assert item["content"][0]["text"] == "tidal"


def test_a_refusal_streams_as_one() -> None:
    stream = ResponseStream(HEAD)
    events = [*stream.piece("", chunk(refusal="N")), *stream.piece("", chunk(refusal="o."))]
    kinds = [event["type"] for event in [*events, *stream.end(reply())]]
    assert kinds[2:] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.refusal.delta",
        "response.refusal.delta",
        "response.refusal.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_a_signature_of_a_call_comes_back_with_it() -> None:
    """Gemini 3 refuses a turn whose function calls have lost theirs."""
    signed = {"extra_content": {"google": {"thought_signature": "s"}}}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    made = whole(HEAD, CallReply(call_id="http:c-1", tool_calls=({**call, **signed},)))
    (item,) = made["output"]
    stream = ResponseStream(HEAD)
    delta = {"index": 0, **call, **signed}
    events = list(stream.piece("", {"choices": [{"delta": {"tool_calls": [delta]}}]}))
    *_, last = [*events, *stream.end(CallReply(call_id="http:c-1"))]
    (streamed,) = last["response"]["output"]
    for one in (item, streamed):
        (turn,) = chat_body({"model": "m", "input": [one]})["messages"]
        assert turn["tool_calls"] == [{**call, **signed}]


def test_a_stream_reports_the_thinking_that_its_last_usage_counts() -> None:
    stream = ResponseStream(HEAD)
    for thought in (7, 90):
        counts = {"completion_tokens_details": {"reasoning_tokens": thought}}
        list(stream.piece("", chunk(content="t") | {"usage": counts}))
    list(stream.piece("", {"choices": [], "usage": None}))
    events = list(stream.end(reply(text="tt", input_tokens=5, output_tokens=100)))
    usage = events[-1]["response"]["usage"]
    assert (usage["output_tokens"], usage["output_tokens_details"]) == (
        100,
        {"reasoning_tokens": 90},
    )


@pytest.mark.parametrize("strange", [5, {}, {"completion_tokens_details": 5}, None])
def test_usage_that_makes_no_sense_counts_no_thinking(strange: Any) -> None:
    stream = ResponseStream(HEAD)
    list(stream.piece("", chunk(content="t") | {"usage": strange}))
    events = list(stream.end(reply(text="t")))
    assert events[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


def test_arguments_that_come_as_an_object_are_text_in_a_function_call() -> None:
    function = {"name": "f", "arguments": {"x": 1}}
    (item,) = whole(HEAD, reply(tool_calls=({"id": "a", "function": function},)))["output"]
    assert item["arguments"] == '{"x":1}'
    stream = ResponseStream(HEAD)
    list(stream.piece("", chunk(tool_calls=[{"index": 0, "id": "a", "function": function}])))
    (item,) = list(stream.end(reply()))[-1]["response"]["output"]
    assert item["arguments"] == '{"x":1}'


def test_indexes_that_come_as_text_tell_function_calls_apart() -> None:
    stream = ResponseStream(HEAD)
    for index, text in (("0", '{"x":'), ("1", '{"y":'), ("0", "1}"), ("1", "2}")):
        call = {"index": index, "function": {"arguments": text}}
        list(stream.piece("", chunk(tool_calls=[call])))
    output = list(stream.end(reply()))[-1]["response"]["output"]
    assert [one["arguments"] for one in output] == ['{"x":1}', '{"y":2}']


def test_cache_marks_go_where_they_are_in_a_chat_completion() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    text, image = {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "x"}
    file = {"type": "input_file", "file_data": "f"}
    chat = chat_body(
        {
            "model": "m",
            "input": [
                {"role": "user", "content": [text | mark, text]},
                {"role": "user", "content": [text | point, image | point, file | mark]},
                {"role": "user", "content": [text | {"cache_control": None}, text]},
                {"role": "user", "content": "a", **mark},
            ],
            "tools": [{"type": "function", "name": "f", **mark}],
        }
    )
    said = {"type": "text", "text": "a"}
    assert chat["messages"] == [
        {"role": "user", "content": [said | mark, said]},
        {
            "role": "user",
            "content": [
                said | point,
                {"type": "image_url", "image_url": {"url": "x"}} | point,
                {"type": "file", "file": {"file_data": "f"}} | mark,
            ],
        },
        {"role": "user", "content": "aa"},
        {"role": "user", "content": "a", **mark},
    ]
    assert chat["tools"] == [{"type": "function", "function": {"name": "f"}, **mark}]


def test_a_mark_that_costs_more_is_held_back_as_in_a_chat_completion() -> None:
    long = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    part = {"type": "input_text", "text": "a", **long}
    chat = chat_body({"model": "m", "input": [{"role": "user", "content": [part]}]})
    call = CallRequest(
        call_id="c",
        model="m",
        openai=OpenAIBody(path="chat/completions", body=chat),
        deadline_at_ms=0,
    )
    assert unusual_fields(call) == {"cache_control"}


def order(*items: str) -> list[str]:
    """Return messages in short: `+1` is the call 1, `=1` its output, `a` and `u` are messages."""
    given = [
        {"type": "function_call", "call_id": item[1:], "name": "f", "arguments": "{}"}
        if item[0] == "+"
        else {"type": "function_call_output", "call_id": item[1:], "output": "o"}
        if item[0] == "="
        else {"role": {"a": "assistant", "u": "user"}[item], "content": item}
        for item in items
    ]
    messages = chat_body({"model": "m", "input": given})["messages"]
    return [
        f"={message['tool_call_id']}"
        if message["role"] == "tool"
        else (message["content"] or "")
        + "".join(f"+{call['id']}" for call in message.get("tool_calls", ()))
        for message in messages
    ]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("u +1 =1 a", "u +1 =1 a"),
        ("u a +1 +2 =2 =1 +3 =3", "u a+1+2 =2 =1 +3 =3"),
        ("u +1 a =1", "u a+1 =1"),
        ("u a +1 a =1", "u a\n\na+1 =1"),
        ("u +1 a =1 u", "u a+1 =1 u"),
        ("u +1 u =1 a", "u +1 =1 u a"),
        ("u +1 a +2 =1 =2 a", "u a+1+2 =1 =2 a"),
        ("u +1 a =1 +2 =2", "u a+1 =1 +2 =2"),
        ("u +1 =1 a +2 =2", "u +1 =1 a+2 =2"),
        ("u a a", "u a a"),
        ("u =7 +1 =1", "u =7 +1 =1"),
        ("u +1 =7 +2 =2 =1", "u +1 =1 =7 +2 =2"),
        ("u +1 +2 =1 a =2", "u a+1+2 =1 =2"),
        ("u +1 +2 =1 a =2 a", "u a+1+2 =1 =2 a"),
        ("u +1 +2 =1 u a =2", "u +1+2 =1 =2 u a"),
    ],
)
def test_outputs_follow_the_turn_with_their_calls(items: str, expected: str) -> None:
    assert order(*items.split(" ")) == expected.split(" ")


def test_many_messages_of_a_turn_are_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []

    def joining(contents: Sequence[Any]) -> Any:
        joined.append(len(contents))
        return join(contents)

    join = request._joined
    monkeypatch.setattr(request, "_joined", joining)
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    given = [call, *({"role": "assistant", "content": str(number)} for number in range(1_000))]
    (turn,) = chat_body({"model": "m", "input": given})["messages"]
    assert turn["content"] == "\n\n".join(map(str, range(1_000)))
    assert joined == [1_000], "to join them one by one takes quadratic time"


def test_what_is_said_after_calls_stays_in_their_turn_with_its_thinking_and_marks() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    mark = {"cache_control": {"type": "ephemeral"}}
    said = [{"type": "output_text", "text": "b", **mark}]
    given = [
        {"type": "reasoning", "encrypted_content": sealed([thinking])},
        {**call, "call_id": "1"},
        {"role": "assistant", "content": "a"},
        {**call, "call_id": "2"},
        {"role": "assistant", "content": said},
        {"type": "function_call_output", "call_id": "1", "output": "o"},
        {"type": "function_call_output", "call_id": "2", "output": "o"},
    ]
    turn, *outputs = chat_body({"model": "m", "input": given})["messages"]
    assert turn["thinking_blocks"] == [thinking]
    assert turn["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b", **mark}]
    assert [one["id"] for one in turn["tool_calls"]] == ["1", "2"]
    assert [one["role"] for one in outputs] == ["tool", "tool"]
