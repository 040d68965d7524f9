"""What a request used whose backend did not say."""

from typing import Any

import pytest

from hocket.gateway.core.calls import request_content
from hocket.gateway.core.calls.unmetered import FASTEST_TOKENS_PER_S, read_tokens, used
from hocket.gateway.core.protocols.openai_api import MAX_CALL_TOKENS, Assembly, completion
from hocket.schemas.messages import Completion
from support.gateway.routing_rig import request


def test_tokens_that_were_seen_are_believed_where_the_engine_stops() -> None:
    seen = Completion(output_tokens=12)
    made = used(request(max_tokens=900), seen, cut=True, goes_on=False, elapsed_ms=60_000)
    assert (made.output_tokens, made.estimated) == (12, True)


def test_input_that_was_metered_before_the_end_counts_if_it_is_more_than_the_text_has() -> None:
    for metered, expected in ((5_000, 5_000), (1, request_content.tokens(request()))):
        seen = Completion(input_tokens=metered, output_tokens=1)
        made = used(request(), seen, cut=True, goes_on=False, elapsed_ms=1.0)
        assert made.input_tokens == expected


def test_of_a_whole_answer_an_engine_that_stops_wrote_what_it_can_have_written_until_then() -> None:
    made = used(request(max_tokens=9_000), Completion(), cut=True, goes_on=False, elapsed_ms=2_000)
    assert made.output_tokens == 1 + 2 * FASTEST_TOKENS_PER_S
    short = used(request(max_tokens=9), Completion(), cut=True, goes_on=False, elapsed_ms=2_000)
    assert short.output_tokens == 9


def test_several_answers_and_prompts_count_each() -> None:
    body = {"prompt": ["a", "b", "c"], "n": 4, "max_tokens": 10}
    several = request(messages=(), openai={"path": "completions", "body": body})
    made = used(several, Completion(), cut=True, goes_on=True, elapsed_ms=1.0)
    assert (request_content.choices(several), made.output_tokens) == (12, 120)


def test_the_size_of_a_reply_is_never_more_tokens_than_its_call_allows() -> None:
    body = {"n": 3, "max_tokens": 13_000, "top_logprobs": 20}
    call = request(messages=(), openai={"path": "chat/completions", "body": body})
    assert read_tokens(call, 24_000_000) == 39_000
    assert read_tokens(call, 400) == 100
    assert read_tokens(request(), 24_000_000) == request_content.WORST_OUTPUT_TOKENS


def test_tokens_estimated_by_a_text_are_no_more_than_the_call_allows_but_counted_ones_are() -> None:
    body = {"n": 2, "max_tokens": 10}
    call = request(messages=(), openai={"path": "chat/completions", "body": body})
    said = {"content": "x" * 400}
    whole = completion(call, {"choices": [{"message": said}] * 2})
    assert used(call, whole, cut=False, goes_on=True, elapsed_ms=1.0).output_tokens == 20
    counted = completion(call, {"choices": [{"message": said}], "usage": {"completion_tokens": 99}})
    assert used(call, counted, cut=False, goes_on=True, elapsed_ms=1.0).output_tokens == 99

    assembly = Assembly(call)
    assembly.add({"choices": [{"index": 0, "delta": said}]})
    assert assembly.spent.output_tokens == 20
    for _ in range(30):
        assembly.add({"choices": [{"index": 0, "delta": {"content": "x"}}]})
    assert assembly.spent.output_tokens == 31


def test_no_estimate_is_more_than_a_record_can_hold() -> None:
    body = {"n": 128, "max_tokens": 10**9}
    most = request(messages=(), openai={"path": "chat/completions", "body": body})
    made = used(most, Completion(), cut=True, goes_on=True, elapsed_ms=1.0)
    assert made.output_tokens == MAX_CALL_TOKENS


def test_an_answer_without_usage_is_booked_by_its_text() -> None:
    seen = Completion(text="x" * 400, estimated=True)
    made = used(request(), seen, cut=False, goes_on=True, elapsed_ms=1.0)
    assert (made.output_tokens, made.text) == (100, "x" * 400)


def test_of_a_whole_answer_counts_what_the_engine_writes_in_that_time_where_it_is_known() -> None:
    cut = {"cut": True, "goes_on": False, "elapsed_ms": 2_000}
    assert used(request(max_tokens=900), Completion(), **cut, written=80.4).output_tokens == 80
    assert used(request(max_tokens=9), Completion(), **cut, written=80.4).output_tokens == 9
    body = {"n": 3, "max_tokens": 900}
    three = request(messages=(), openai={"path": "chat/completions", "body": body})
    assert used(three, Completion(), **cut, written=80.4).output_tokens == 241


@pytest.mark.parametrize(
    "said",
    [
        {"content": "x" * 400},
        {"content": "\u6f6e" * 133 + "x"},
        {"content": None, "reasoning": "x" * 400, "reasoning_content": "x" * 400},
        {"content": "x" * 100, "refusal": "x" * 300},
        {"content": None, "tool_calls": [{"arguments": "x" * 382}]},
    ],
)
def test_all_that_was_written_counts_in_every_choice(said: dict[str, Any]) -> None:
    call = request(messages=(), openai={"path": "chat/completions", "body": {"n": 10}})
    whole = completion(call, {"choices": [{"message": said}] * 10 + ["?"]})
    made = used(call, whole, cut=False, goes_on=True, elapsed_ms=1.0)
    assert (made.output_tokens, made.estimated) == (1_000, True)

    assembly = Assembly(call)
    for index in range(10):
        assembly.add({"choices": [{"index": index, "delta": said}]})
    assert assembly.spent.output_tokens == 1_000
