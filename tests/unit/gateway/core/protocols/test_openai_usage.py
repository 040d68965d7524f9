"""The usage that OpenAI-compatible backends report."""

from typing import Any

import pytest

from hocket.gateway.core.protocols.openai_api import Assembly, ReplyUnreadable, usage
from hocket.schemas.messages import CallRequest
from support.gateway.routing_rig import request

COUNTS = {"prompt_tokens": 120, "completion_tokens": 7}


@pytest.mark.parametrize(
    ("more", "written"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30}}, 30),
        ({"prompt_tokens_details": {"cached_tokens": 20}, "cache_creation_input_tokens": 30}, 30),
        ({"prompt_tokens_details": {"cached_tokens": 20}, "cache_creation_input_tokens": None}, 0),
        ({"prompt_tokens_details": {"cached_tokens": 20}}, 0),
        ({"cached_tokens": 20}, 0),  # Moonshot
        ({"prompt_tokens_details": {"cached_tokens": 20}, "cached_tokens": 20}, 0),
    ],
)
def test_what_a_prompt_cache_holds_is_read_wherever_providers_and_routers_report_it(
    more: dict[str, Any], written: int
) -> None:
    used = usage({**COUNTS, **more})
    assert (used.input_tokens, used.cached_tokens) == (120, 20)
    assert used.cache_write_tokens == written


@pytest.mark.parametrize(
    ("found", "written", "estimated"),
    [
        (  # xAI: 10,120 + 1,499 + 2,809 tokens of reasoning
            {
                "prompt_tokens": 10_120,
                "completion_tokens": 1_499,
                "total_tokens": 14_428,
                "completion_tokens_details": {"reasoning_tokens": 2_809},
            },
            4_308,
            False,
        ),
        ({**COUNTS, "total_tokens": 500}, 380, False),
        ({"prompt_tokens": 120, "total_tokens": 500}, 380, False),
        (  # OpenAI: its `completion_tokens` include the reasoning
            {
                **COUNTS,
                "total_tokens": 127,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            7,
            False,
        ),
        ({**COUNTS, "total_tokens": 5}, 7, False),
        ({"prompt_tokens": 120, "total_tokens": 120}, 0, True),
        ({"completion_tokens": 7, "total_tokens": 127}, 7, True),
        ({"prompt_tokens": 120.0, "completion_tokens": 7.0, "total_tokens": 500.0}, 380, False),
        *(({**COUNTS, "total_tokens": odd}, 7, False) for odd in (None, "127", 500.5, 10**9, True)),
    ],
)
def test_reasoning_that_only_the_total_holds_is_output(
    found: dict[str, Any], written: int, estimated: bool
) -> None:
    used = usage(found)
    assert (used.output_tokens, used.estimated) == (written, estimated)


def test_an_embedding_writes_nothing_whatever_its_total() -> None:
    used = usage({"prompt_tokens": 120, "total_tokens": 500}, writes=False)
    assert (used.input_tokens, used.output_tokens, used.estimated) == (120, 0, False)


def test_a_stream_is_metered_with_the_reasoning_that_only_the_total_holds() -> None:
    call = CallRequest(call_id="c", model="m", deadline_at_ms=0)
    assembly = Assembly(call)
    assembly.add({"choices": [{"delta": {"content": "5 m"}, "finish_reason": "stop"}]})
    assembly.add({"choices": [], "usage": {**COUNTS, "total_tokens": 500}})
    made = assembly.completion()
    assert (made.input_tokens, made.output_tokens, made.estimated) == (120, 380, False)


def test_an_empty_usage_does_not_replace_what_was_metered() -> None:
    assembly = Assembly(CallRequest(call_id="c", model="m", deadline_at_ms=0))
    assembly.add({"choices": [{"delta": {"content": "5 m"}, "finish_reason": "stop"}]})
    assembly.add({"choices": [], "usage": COUNTS})
    assembly.add({"choices": [], "usage": {}})
    made = assembly.completion()
    assert (made.input_tokens, made.output_tokens, made.estimated) == (120, 7, False)


@pytest.mark.parametrize(("metered", "written", "expected"), [(500, 40, 500), (1, 400, 100)])
def test_a_stream_that_breaks_off_used_what_was_metered_or_written_until_then(
    metered: int, written: int, expected: int
) -> None:
    assembly = Assembly(CallRequest(call_id="c", model="m", deadline_at_ms=0))
    told = {"prompt_tokens": 120, "completion_tokens": metered}
    assembly.add({"choices": [{"delta": {"content": "x" * written}}], "usage": told})
    spent = assembly.spent
    assert (spent.input_tokens, spent.output_tokens, spent.estimated) == (120, expected, True)


@pytest.mark.parametrize(("answers", "counted"), [(1, True), (2, False)])
def test_usage_in_the_only_choice_of_a_stream_is_that_of_the_answer(
    answers: int, counted: bool
) -> None:
    """As of Moonshot; with several answers, each choice would tell its own."""
    body = {"model": "m", "messages": [], "n": answers}
    assembly = Assembly(request(openai={"path": "chat/completions", "body": body}))
    assembly.add({"choices": [{"index": 0, "delta": {"content": "Bonn"}, "finish_reason": None}]})
    end = {
        "index": 0,
        "delta": {},
        "finish_reason": "stop",
        "usage": {**COUNTS, "cached_tokens": 9},
    }
    assembly.add({"choices": [end]})
    spent = assembly.completion()
    assert spent.estimated is not counted
    if counted:
        assert (spent.input_tokens, spent.output_tokens, spent.cached_tokens) == (120, 7, 9)


@pytest.mark.parametrize("count", [7.5, float("inf"), float("nan"), -1.0, 1e12, "7", True])
def test_what_is_no_whole_number_is_no_count(count: Any) -> None:
    with pytest.raises(ReplyUnreadable, match="completion_tokens"):
        usage({"prompt_tokens": 120, "completion_tokens": count})


def written(text: str, reason: str | None = None, told: Any = None) -> dict[str, Any]:
    delta = {"role": "assistant", "content": text}
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return chunk if told is None else {**chunk, "usage": told}


def counted(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 120, "completion_tokens": tokens}


GROWING = tuple(written("x" * 40, told=counted(tokens)) for tokens in (1, 2))


@pytest.mark.parametrize(
    ("chunks", "tokens", "estimated"),
    [
        (
            ({"choices": [], "usage": counted(0)}, written("x" * 400), written("", "stop")),
            100,
            True,
        ),
        ((written("x" * 40, told=counted(0)), written("x" * 360), written("", "stop")), 100, True),
        ((written("x" * 40, told=counted(500)), written("x" * 360, "stop")), 500, True),
        ((written("x" * 400), written("", told=counted(7)), written("", "stop")), 7, False),
        ((written("x" * 400), written("", "stop", counted(7)), written("")), 7, False),
        (({"choices": [], "usage": counted(0)}, written("x" * 400, "stop", counted(7))), 7, False),
        ((*GROWING, written("", "stop")), 2, False),
        ((*GROWING, written("x" * 40, "stop", counted(3))), 3, False),
    ],
    ids=[
        "at first",
        "with the first piece",
        "early and more than seen",
        "before the end",
        "at the end",
        "at first and last",
        "with each piece",
        "with each piece and the end",
    ],
)
def test_usage_counts_what_was_written_until_it_came_and_not_what_came_later(
    chunks: tuple[dict[str, Any], ...], tokens: int, estimated: bool
) -> None:
    assembly = Assembly(CallRequest(call_id="c", model="m", deadline_at_ms=0))
    for chunk in chunks:
        assembly.add(chunk)
    made = assembly.completion()
    assert (made.input_tokens, made.output_tokens, made.estimated) == (120, tokens, estimated)
    assert assembly.settled is not estimated
