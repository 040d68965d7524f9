"""What a call weighs, in money, memory and time, however it is written: none of it goes uncounted."""

import asyncio
import json
import threading
import time
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from hocket.gateway.api.http.bodies import read
from hocket.gateway.api.http.body_types import BodyInvalid
from hocket.gateway.api.http.intake import (
    MAX_BODIES_BYTES,
    Bodies,
    BodiesFull,
    Body,
    parsed_bytes,
)
from hocket.gateway.core.budgets.budget import Budget, Budgets
from hocket.gateway.core.budgets.estimate import Estimate, Estimator
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.calls.cascade import _data
from hocket.gateway.core.calls.pii import PATTERNS, MaskingStopped, Masks, Unmasking
from hocket.gateway.core.calls.reply_cache import size_bytes
from hocket.gateway.core.errors import BudgetsFull
from hocket.gateway.core.protocols.json_size import MAX_ANSWER_VALUES, answer_value
from hocket.gateway.core.protocols.openai_api import Assembly, completion, usage
from hocket.gateway.core.protocols.tensors import encoded
from hocket.gateway.core.protocols.triton import TensorInvalid, _count, _vectors
from hocket.gateway.hooks import pii
from hocket.schemas.messages import CallReply, CallRequest, Completion
from support.gateway.routing_rig import request

LONG = "x" * 40_000
TOKENS = 10_000
TURN = {"role": "user", "content": "a"}

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "tools": ("chat/completions", {"tools": [{"function": {"description": LONG}}]}),
    "names of a tool": ("chat/completions", {"tools": [{"properties": {LONG: {}}}]}),
    "functions": ("chat/completions", {"functions": [{"description": LONG}]}),
    "schema": ("chat/completions", {"response_format": {"json_schema": {"schema": {"d": LONG}}}}),
    "guided": ("chat/completions", {"guided_json": {"d": LONG}}),
    "arguments": (
        "chat/completions",
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": LONG}}]}]},
    ),
    "refusal": ("chat/completions", {"messages": [{"content": [{"refusal": LONG}]}]}),
    "reasoning": ("chat/completions", {"messages": [{"reasoning_content": LONG}]}),
    "links": (
        "chat/completions",
        {"messages": [{"content": [{"image_url": {"url": "https://x/y.png"}}] * 10}]},
    ),
    "file": (
        "chat/completions",
        {"messages": [{"content": [{"file": {"file_data": "x" * 1_000_000}}]}]},
    ),
    "token ids": ("completions", {"prompt": [17] * TOKENS}),
    "lists of token ids": ("embeddings", {"input": [[17] * 100] * 100}),
    "text named user": ("chat/completions", {"tools": [{"function": {"user": LONG}}]}),
    "text named data": ("chat/completions", {"documents": [{"data": LONG}]}),
    "empty values": ("chat/completions", {"tools": [{"enum": [None] * 8_000}]}),
    "long numbers": ("chat/completions", {"tools": [{"enum": [10**999] * 40}]}),
    "empty messages": ("chat/completions", {"messages": [{"role": "user", "content": ""}] * 2_500}),
    "empty parts": ("chat/completions", {"messages": [{"content": [{"text": ""}] * TOKENS}]}),
    "other letters": ("chat/completions", {"messages": [{"content": "\u6f6e" * 13_334}]}),
    "text file": (
        "chat/completions",
        {"messages": [{"content": [{"file": {"file_data": "data:text/plain;" + "x" * 53_334}}]}]},
    ),
    "suffix": ("completions", {"prompt": "a", "suffix": LONG}),
    "prediction": ("chat/completions", {"prediction": {"content": LONG}}),
}
FIELDS: dict[str, dict[str, Any]] = {
    "tools": {"tools": [{"function": {"description": LONG}}]},
    "schema": {"response_schema": {"description": LONG}},
    "tool calls": {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"a": LONG}]}]},
    "cell": {"documents": [{"id": "S1", "kind": "table", "columns": ["a"], "rows": [[LONG]]}]},
    "column": {"documents": [{"id": "S1", "kind": "table", "columns": [LONG]}]},
    "rows without columns": {
        "documents": [{"id": "S1", "kind": "table", "rows": [["x" * 40] * 1000]}]
    },
    "text named user": {"tools": [{"user": LONG}]},
    "empty messages": {"messages": [{"role": "user", "content": ""}] * 2_500},
    "other letters": {"embed": ["\u6f6e" * 13_334]},
    "long numbers": {"documents": [{"id": "S1", "kind": "table", "rows": [[10**999] * 40]}]},
    "source": {"documents": [{"id": "S1", "source": LONG}]},
}


@pytest.mark.parametrize(("path", "body"), BODIES.values(), ids=BODIES.keys())
def test_all_that_a_body_sends_counts_before_it_is_sent(path: str, body: dict[str, Any]) -> None:
    call = request(messages=(), openai={"path": path, "body": body})
    assert TOKENS <= request_content.tokens(call) <= TOKENS * 1.2


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS.keys())
def test_all_that_a_call_of_ours_sends_counts_before_it_is_sent(fields: dict[str, Any]) -> None:
    assert TOKENS <= request_content.tokens(request(**{"messages": (), **fields})) <= TOKENS * 1.2


def test_of_two_limits_of_an_answer_the_larger_counts() -> None:
    body = {"max_completion_tokens": 1, "max_tokens": 1_000_000}
    call = request(messages=(), openai={"path": "completions", "body": body})
    assert request_content.max_tokens(call) == 1_000_000


@pytest.mark.parametrize(
    "field",
    [{"best_of": 10**6}, {"best_of": 2.5}, {"max_completion_tokens": -1}, {"min_tokens": "900000"}],
)
def test_what_a_completion_may_cost_is_checked_at_the_door(field: dict[str, Any]) -> None:
    with pytest.raises(BodyInvalid):
        read("completions", json.dumps({"model": "m", "prompt": "a", **field}).encode())


# ---- usage that says nothing ------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [{}, {"input_tokens": 5, "output_tokens": 7}, {"prompt_tokens": 5}, {"total_tokens": 9}]
)
def test_a_usage_without_counts_is_no_usage(said: dict[str, Any]) -> None:
    assert usage(said).estimated


def test_embeddings_are_metered_by_what_was_read() -> None:
    call = request(messages=(), embed=("a",))
    reply = {"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 5}}
    assert not completion(call, reply).estimated


def test_a_usage_on_the_way_is_not_that_of_the_end() -> None:
    assembly = Assembly(request())
    told = {"prompt_tokens": 100, "completion_tokens": 1}
    assembly.add({"choices": [{"delta": {"content": "tidal"}}], "usage": told})
    assert (assembly.spent.input_tokens, assembly.spent.estimated) == (100, True)
    assembly.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assembly.add({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 2}})
    assert (assembly.spent.output_tokens, assembly.spent.estimated) == (2, False)


def test_the_usage_of_one_choice_is_not_that_of_the_others() -> None:
    assembly = Assembly(request())
    for count in range(100):
        told = {"prompt_tokens": 5, "completion_tokens": count + 1}
        assembly.add({"choices": [{"index": 1, "delta": {"content": "a"}}], "usage": told})
    told = {"prompt_tokens": 5, "completion_tokens": 1}
    first = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    assembly.add({"choices": [first], "usage": told})
    assert (assembly.spent.output_tokens, assembly.spent.estimated) == (101, True)
    assembly.add({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 101}})
    assert (assembly.spent.output_tokens, assembly.spent.estimated) == (101, False)


def test_usage_with_every_chunk_is_final_where_it_is_that_of_all_choices() -> None:
    body = {"n": 2, "stream_options": {"continuous_usage_stats": True}}
    call = request(messages=(), openai={"path": "chat/completions", "body": body})
    assembly = Assembly(call)
    for index in (0, 1):
        for count in range(100):
            told = {"prompt_tokens": 5, "completion_tokens": count + 1}
            ends = {"finish_reason": "stop"} if count == 99 else {}
            part = {"index": index, "delta": {"content": "a"}, **ends}
            assembly.add({"choices": [part], "usage": told})
    assert (assembly.spent.output_tokens, assembly.spent.estimated) == (200, True)
    assembly.add({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 200}})
    assert (assembly.spent.output_tokens, assembly.spent.estimated) == (200, False)


@pytest.mark.parametrize("count", [float("inf"), float("nan"), -1.0, 1e18])
def test_tensors_that_count_no_tokens_are_typed_errors(count: float) -> None:
    with pytest.raises(TensorInvalid):
        _count({"n": encoded("n", "FP64", [count])}, "n")


def test_an_embedding_of_a_tensor_holds_finite_numbers() -> None:
    with pytest.raises(TensorInvalid):
        list(_vectors(encoded("e", "FP32", [[1.0, float("nan")]])))


# ---- memory -----------------------------------------------------------------------------------


def test_a_remembered_reply_weighs_what_it_holds() -> None:
    for fields in (
        {"tool_calls": ({"function": {"arguments": "x" * 1_000_000}},)},
        {"finish_reason": "x" * 1_000_000},
        {"text": "\u6f6e" * 500_000},
        {"text": "[]", "data": [[] for _ in range(15_000)]},
    ):
        reply = CallReply.model_validate({"call_id": "c", "model": "m", **fields})
        assert (size_bytes(reply, 100_000) or 0) > 950_000


def test_an_answer_of_very_many_values_is_no_value() -> None:
    text = "[" + "[]," * MAX_ANSWER_VALUES + "[]]"
    assert answer_value(text) is None
    assert _data(Completion(text=text)) is None
    assert answer_value('{"a": [1]}') == {"a": [1]}


def test_an_answer_that_cannot_be_sent_on_is_not_read() -> None:
    """A reply with half of a surrogate pair in its data could not be encoded."""
    assert answer_value('"\\ud83d\\ude00"') == "\U0001f600"
    assert answer_value('"\\ud83d"') is None


def test_a_body_counts_with_what_it_takes_once_it_is_read() -> None:
    bodies, held = Bodies(), []
    content = b"[" + b"[[]]," * 190_000 + b"[]]"

    def hold(count: int) -> None:
        for _ in range(count):
            body = Body(bodies)
            held.append(body)
            body.take(len(content))
            body.content = content
            body.weigh(parsed_bytes(content))

    with pytest.raises(BodiesFull):
        hold(8)
    assert bodies.held_bytes <= MAX_BODIES_BYTES
    for body in held:
        body.release()
    assert bodies.held_bytes == 0


# ---- budgets ----------------------------------------------------------------------------------


def test_names_of_pipelines_of_one_tenant_leave_room_for_the_others() -> None:
    budgets = Budgets(Estimator(), max_period_accounts=50, max_pipeline_accounts=5)
    spent = Estimate(("m", "", ""), 1.0, 1.0, 1.0)

    def spend(tenant: str, pipeline: str, now_ms: float = 0.0) -> None:
        budget = Budget("pipeline", f"{tenant}/{pipeline}", Decimal(9), "hour", tenant=tenant)
        account = budgets.account(budget, now_ms)
        budgets.settle(budgets.reserve([account], spent), Decimal(1))

    for number in range(5):
        spend("greedy", str(number))
    with pytest.raises(BudgetsFull):
        spend("greedy", "one more")
    spend("greedy", "0")
    spend("modest", "first")
    spend("greedy", "one more", now_ms=3_600_000.0)  # what the hour before spent counts no more
    assert len(budgets) == 6


# ---- time -------------------------------------------------------------------------------------


def test_an_answer_of_beginnings_of_placeholders_is_looked_through_in_linear_time() -> None:
    text = " ".join(f"u{number}@x{number}.de" for number in range(10_000))
    masks = Masks(PATTERNS.values(), [text])
    masks.mask(text)
    began = time.process_time()
    assert masks.unmask("<EMAIL_" * 100_000) == "<EMAIL_" * 100_000
    stream = Unmasking(masks)
    said = "".join(stream.piece("<EMAIL_7> <") for _ in range(5_000)) + stream.rest()
    assert said.count("u6@x6.de") == 5_000
    for part in ("\\", "\\\\", r"\u003cEMAIL_", r"\u003", r"\u003c"):
        stream = Unmasking(masks, in_json=True)
        assert masks.unmask_json(part * 100_000) == part * 100_000
        said = "".join(map(stream.piece, part * 10_000)) + stream.rest()
        assert said == part * 10_000
    assert time.process_time() - began < 10  # an alternative for each of them takes minutes


async def test_masking_ends_when_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()
    masked = pii.with_texts

    def seen(call: CallRequest, mask: Any, check: Any) -> CallRequest:
        began.set()
        try:
            return masked(call, mask, check)
        finally:
            ended.set()

    monkeypatch.setattr(pii, "with_texts", seen)
    hook = pii.PiiHook({})
    slow = request(messages=({"role": "user", "content": "1 " * 8_000_000},))
    masking = asyncio.create_task(hook.before(slow))
    assert await asyncio.to_thread(began.wait, 60)
    masking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await masking
    assert await asyncio.to_thread(ended.wait, 60)  # all of it takes many minutes


@pytest.mark.parametrize(
    "body",
    [
        {"input": list(range(5_000))},
        {"input": [[1]] * 5_000},
        {"messages": [{"role": "user", "content": [{"n": None}] * 5_000}]},
        {"metadata": {str(number): 1.5 for number in range(5_000)}},
        {"messages": [{}] * 5_000},
    ],
)
async def test_what_is_no_text_counts_for_whether_a_call_is_searched_on_the_event_loop(
    body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two million token ids took seconds, in which no other call went on."""
    threads: list[int] = []
    masked = pii.with_texts

    def seen(call: CallRequest, mask: Any, *check: Any) -> CallRequest:
        threads.append(threading.get_ident())
        return masked(call, mask, *check)

    monkeypatch.setattr(pii, "with_texts", seen)
    call = request(messages=(), openai={"path": "embeddings", "body": body})
    assert (await pii.PiiHook({}).before(call)).request == call
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 9_000}"}}
    shown = [{"role": "user", "content": [image]}]
    small = request(messages=(), openai={"path": "chat/completions", "body": {"messages": shown}})
    await pii.PiiHook({}).before(small)
    assert threads[0] != threads[1] == threading.get_ident()


async def test_looking_for_texts_where_there_are_none_ends_when_nobody_waits_for_it() -> None:
    stopped = threading.Event()
    stopped.set()
    body = {"messages": [{"role": "user", "content": [{"n": None}] * 9}]}
    call = request(messages=(), openai={"path": "chat/completions", "body": body})
    with pytest.raises(MaskingStopped):
        pii.texts_of(call, partial(pii._check, stopped))


async def test_a_request_is_counted_once_and_a_copy_with_other_content_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[CallRequest] = []
    count = request_content._count

    def counts(one: CallRequest) -> int:
        counted.append(one)
        return count(one)

    monkeypatch.setattr(request_content, "_count", counts)
    path, body = BODIES["lists of token ids"]
    one = request(openai={"path": path, "body": body})
    assert request_content.tokens(one) == request_content.tokens(one) > TOKENS
    assert len(counted) == 1
    other = one.model_copy(update={"openai": None})
    assert request_content.tokens(other) < 100
    assert request_content.tokens(one.model_copy(update={"budget_usd": "1"})) > TOKENS
    assert len(counted) == 2


def test_a_counted_request_is_the_same_message_and_nothing_outlives_it() -> None:
    def kept() -> list[str]:
        held = vars(request_content).items()
        return [
            name for name, one in held if isinstance(one, dict | list | set) and name[:2] != "__"
        ]

    before = kept()
    one, other = request(tools=({"type": "function"},)), request(tools=({"type": "function"},))
    assert request_content.tokens(one) > 0
    assert one == other
    assert one.model_dump() == other.model_dump()
    assert one.model_dump_json() == other.model_dump_json()
    assert kept() == before == []


def test_a_list_that_has_more_than_numbers_is_read_on() -> None:
    body = {"documents": [1, "tide", [2, 3], [4, {"text": "moon"}]]}
    call = request(messages=(), openai={"path": "chat/completions", "body": body})
    assert list(request_content.texts(call)) == ["tide", "moon"]
