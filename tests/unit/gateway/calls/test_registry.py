"""Calls that a gateway holds belong to a tenant, and to a step or a key: nobody joins, stops or is
answered another one's."""

import asyncio
import itertools
import json
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.api.call_requests import checked
from hocket.gateway.calls.registry import OUTLASTS_MS, CallRegistry
from hocket.gateway.core.calls import call_key, request_content
from hocket.gateway.core.calls.call_key import CallKey, digest
from hocket.gateway.core.calls.unmetered import used
from hocket.gateway.core.errors import CallIdReused, CallMalformed, GatewayFull
from hocket.gateway.core.protocols.json_parts import PART_CHARS, parts
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.messages import (
    Attribution,
    CallCancelled,
    CallReply,
    CallRequest,
    ChatMessage,
    Completion,
    OpenAIBody,
    Requirements,
    StepCancelled,
)
from support.gateway.routing_rig import (
    BOUND_S,
    NOW_MS,
    Rig,
    backend,
    breaks,
    hangs,
    request,
    says,
)

MODELS = {"writer": {"backends": [backend("a")]}}


def wanted(tenant: str) -> CallRequest:
    return request("c", attribution=Attribution(tenant=tenant))


def registry(rig: Rig) -> CallRegistry:
    return CallRegistry(rig.calls, GatewayMetrics(CollectorRegistry()))


async def test_a_caller_gets_of_an_error_what_it_may_see() -> None:
    def shown(call: CallRequest, reply: CallReply) -> CallReply:
        assert reply.error is not None
        return reply.model_copy(update={"text": f"of {call.attribution.tenant}"})

    rig = Rig(MODELS, a=breaks())
    calls = CallRegistry(rig.calls, GatewayMetrics(CollectorRegistry()), shown=shown)
    told: list[CallReply] = []
    reply = await asyncio.wait_for(calls.begin(wanted("ours"), tell=told.append), BOUND_S)
    assert reply.text == told[0].text == "of ours"


async def test_a_used_id_of_another_tenant_is_a_call_of_its_own() -> None:
    rig = Rig(MODELS, a=says("tidal"))
    calls = registry(rig)
    for tenant in ("ours", "theirs", "ours"):
        await asyncio.wait_for(calls.begin(wanted(tenant)), BOUND_S)
    assert [one.attribution.tenant for one in rig.records] == ["ours", "theirs"]
    assert await calls.find(CallKey("nobody", "c")) is None


async def test_an_attempt_that_was_handed_out_again_with_another_input_gets_its_own_answers() -> (
    None
):
    """If a crash took the end of a log, what is decided again may differ, under the same ids."""
    rig = Rig(MODELS, a=says("tidal"))
    calls = registry(rig)
    who = Attribution(tenant="ours", run_id="r1", step="look")
    for at_ms in (NOW_MS, NOW_MS + 1, NOW_MS):
        made = calls.begin(request("c", attribution=who, dispatched_at_ms=at_ms))
        await asyncio.wait_for(made, BOUND_S)
    assert len(rig.records) == 2


KEYED = [{"hocket.key": name} for name in ("0123456789ab", "ba9876543210")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"run_id": "r1", "step": "look"}, {"run_id": "r1", "step": "verify"}),
        ({"run_id": "r1", "step": "look"}, {"run_id": "r2", "step": "look"}),
        ({"run_id": "r1", "step": "look"}, {}),
        ({"labels": KEYED[0]}, {"labels": KEYED[1]}),
    ],
)
async def test_a_used_id_of_another_step_or_key_is_a_call_of_its_own(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Ids can be guessed: who names another's would get its reply, or leave it a reply of their own."""
    rig = Rig(MODELS, a=says("tidal"))
    calls = registry(rig)
    for who in (one, other, one):
        made = calls.begin(request("c", attribution=Attribution(tenant="ours", **who)))
        await asyncio.wait_for(made, BOUND_S)
    booked = [record.attribution for record in rig.records]
    assert [(who.run_id, who.step, who.labels) for who in booked] == [
        (who.get("run_id"), who.get("step"), who.get("labels")) for who in (one, other)
    ]


async def test_whoever_stops_a_call_stops_none_of_another_step_with_the_same_id() -> None:
    slow = hangs()
    calls = registry(Rig(MODELS, a=slow))
    mine, other = [
        request(
            "c", attribution=Attribution(tenant="ours", run_id="r1", step=step), capability=step
        )
        for step in ("look", "verify")
    ]
    replies = [calls.begin(one) for one in (mine, other)]
    calls.cancel_from_outside(CallCancelled(tenant="ours", call_id="c", capability="look"))
    made = await asyncio.wait_for(replies[0], BOUND_S)
    assert made.error is not None
    assert made.error.code == "call_cancelled"
    assert not replies[1].done()
    await calls.drain(drain_ms=0, flush_ms=5_000)


async def test_a_call_is_stopped_by_its_own_tenant_only() -> None:
    slow = hangs()
    calls = registry(Rig(MODELS, a=slow))
    reply = calls.begin(wanted("ours"))
    await asyncio.wait_for(slow.called.wait(), BOUND_S)
    calls.leave(wanted("theirs"), "out of spite")
    await asyncio.sleep(0)
    assert (slow.stopped, reply.done()) == (0, False)
    calls.leave(wanted("ours"), "it is not needed")
    made = await asyncio.wait_for(reply, BOUND_S)
    assert made.error is not None
    assert made.error.code == "call_cancelled"


def _of_openai(call_id: str = "c") -> CallRequest:
    body = {"messages": [{"role": "user", "content": "a"}]}
    return _over_nats(body, call_id=call_id).model_copy(update={"deadline_at_ms": NOW_MS + 60_000})


async def test_an_answer_in_openais_format_is_made_once_though_its_reply_was_lost() -> None:
    answer = {"choices": [{"message": {"content": "tidal"}}]}
    rig = Rig(MODELS, a=says("tidal", openai=answer))
    calls = registry(rig)
    replies = [await asyncio.wait_for(calls.begin(_of_openai()), BOUND_S) for _ in range(2)]
    assert [reply.openai for reply in replies] == [answer, answer]
    assert len(rig.records) == 1


async def test_a_call_that_one_of_two_callers_leaves_goes_on_for_the_other() -> None:
    slow = hangs()
    rig = Rig(MODELS, a=slow)
    calls = registry(rig)
    replies = [calls.begin(wanted("ours")) for _ in range(2)]
    await asyncio.wait_for(slow.called.wait(), BOUND_S)
    calls.leave(wanted("ours"), "its caller disconnected")
    await asyncio.sleep(0)
    assert (slow.stopped, replies[1].done()) == (0, False)
    calls.leave(wanted("ours"), "its caller disconnected")
    made = await asyncio.wait_for(replies[1], BOUND_S)
    assert made.error is not None
    assert (made.error.code, slow.stopped) == ("call_cancelled", 1)


async def test_a_call_that_all_callers_left_is_made_anew_while_the_first_is_read_on() -> None:
    slow = hangs()
    rig = Rig({"writer": {"backends": [backend("a", stops_on_disconnect=False)]}}, a=slow)
    calls = registry(rig)
    calls.begin(wanted("ours"))
    await asyncio.wait_for(slow.called.wait(), BOUND_S)
    calls.leave(wanted("ours"), "its caller disconnected")
    slow.behaviour = says("tidal").behaviour
    again = await asyncio.wait_for(calls.begin(wanted("ours")), BOUND_S)
    assert (again.text, again.error) == ("tidal", None)
    await calls.drain(drain_ms=0, flush_ms=5_000)
    assert sorted(record.status for record in rig.records) == ["cancelled", "ok"]


OTHER = (ChatMessage(role="user", content="For an adult?"),)
NAMED = Attribution(tenant="ours", run_id="r1", step="look")


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": OTHER},
        {"model": "other"},
        {"max_tokens": 5},
        {"requires": Requirements(min_quality=0.5)},
        {"openai": OpenAIBody(path="embeddings", body={"input": "a"})},
    ],
)
async def test_nobody_gets_the_answer_to_another_question_under_the_same_id(
    fields: dict[str, Any],
) -> None:
    rig = Rig(MODELS, a=hangs())
    calls = registry(rig)
    asked = wanted("ours")
    calls.begin(asked)
    with pytest.raises(CallIdReused) as refused:
        calls.begin(asked.model_copy(update=fields))
    assert refused.value.fields["field"] == "call_id"
    assert not calls.knows(asked.model_copy(update=fields))
    await calls.drain(drain_ms=0, flush_ms=5_000)


async def test_a_repeat_joins_whatever_its_time_and_its_money_are_and_as_a_stream_or_not() -> None:
    rig = Rig(MODELS, a=hangs())
    calls = registry(rig)
    body = {"messages": [{"role": "user", "content": "a"}], "stream": True, "user": "u"}
    for first, again in (
        (wanted("ours"), {"deadline_at_ms": NOW_MS + 99, "budget_usd": 1, "capability": "cap"}),
        (
            _over_nats(body, call_id="o", deadline_at_ms=NOW_MS + 60_000),
            {"openai": OpenAIBody(path="chat/completions", body={"messages": body["messages"]})},
        ),
    ):
        reply = calls.begin(first)
        repeat = first.model_copy(update=again)
        assert calls.begin(repeat) is reply
        assert calls.knows(repeat)
        assert digest(first) == digest(repeat)
    await calls.drain(drain_ms=0, flush_ms=5_000)


async def test_a_step_that_asks_something_else_after_a_crash_gets_its_own_answer() -> None:
    """Its worker may have died, and another one makes its calls in another order."""
    slow = hangs()
    rig = Rig(MODELS, a=slow)
    calls = registry(rig)
    first = request("c", attribution=NAMED, dispatched_at_ms=NOW_MS)
    other = request("c", attribution=NAMED, dispatched_at_ms=NOW_MS, messages=OTHER)
    reply = calls.begin(first)
    await asyncio.wait_for(slow.called.wait(), BOUND_S)
    slow.behaviour = says("tidal").behaviour
    made = await asyncio.wait_for(calls.begin(other), BOUND_S)
    assert (made.text, reply.done()) == ("tidal", False)
    await calls.drain(drain_ms=0, flush_ms=5_000)
    assert [one.messages for one in slow.requests] == [first.messages, OTHER]


def of_workers(**fields: Any) -> tuple[CallRequest, CallRequest]:
    """Return the calls of two workers that have the same step, and ask different things."""
    one = request("c", attribution=NAMED, dispatched_at_ms=NOW_MS, **fields)
    return one, one.model_copy(update={"messages": OTHER})


async def test_the_calls_of_a_step_that_ask_different_things_are_stopped_with_it() -> None:
    calls = registry(Rig(MODELS, a=hangs()))
    replies = [calls.begin(one) for one in of_workers()]
    calls.cancel_attempt(StepCancelled(run_id="r1", step="look", tenant="ours"))
    made = [await asyncio.wait_for(reply, BOUND_S) for reply in replies]
    assert [one.error.code for one in made if one.error is not None] == ["call_cancelled"] * 2


@pytest.mark.parametrize("leaving", [0, 1])
async def test_whoever_leaves_a_call_of_a_step_leaves_the_one_that_asks_something_else(
    leaving: int,
) -> None:
    calls = registry(Rig(MODELS, a=hangs()))
    asked = of_workers()
    replies = [calls.begin(one) for one in asked]
    calls.leave(asked[leaving], "its caller is no longer waiting")
    made = await asyncio.wait_for(replies[leaving], BOUND_S)
    assert made.error is not None
    assert not replies[1 - leaving].done()
    assert calls.begin(asked[1 - leaving]) is replies[1 - leaving]
    assert not calls.knows(asked[leaving].model_copy(update={"max_tokens": 5}))
    await calls.drain(drain_ms=0, flush_ms=5_000)


async def test_both_calls_of_a_step_that_asks_different_things_are_made_once() -> None:
    """Whichever ends last, its reply leaves the other's remembered."""
    said = says("tidal")
    at_once, go = said.behaviour, asyncio.Event()

    async def behaviour(call: CallRequest, chunks: Any) -> Completion:
        if call.messages != OTHER:
            await go.wait()
        return await at_once(call, chunks)

    said.behaviour = behaviour
    rig = Rig(MODELS, a=said)
    calls = registry(rig)
    first, second = of_workers()
    slow = calls.begin(first)
    await asyncio.wait_for(calls.begin(second), BOUND_S)
    assert calls.begin(first) is slow
    go.set()
    await asyncio.wait_for(slow, BOUND_S)
    await calls.drain(drain_ms=5_000, flush_ms=5_000)
    for one in (second, first):
        assert (await asyncio.wait_for(calls.begin(one), BOUND_S)).error is None
        assert await calls.find(CallKey.of(one), digest(one)) is not None
    assert len(rig.records) == 2


async def test_a_call_that_its_callers_left_does_not_replace_the_reply_of_the_next() -> None:
    slow = hangs()
    rig = Rig({"writer": {"backends": [backend("a", stops_on_disconnect=False)]}}, a=slow)
    calls = registry(rig)
    calls.begin(wanted("ours"))
    await asyncio.wait_for(slow.called.wait(), BOUND_S)
    calls.leave(wanted("ours"), "its caller disconnected")
    slow.behaviour = says("tidal").behaviour
    await asyncio.wait_for(calls.begin(wanted("ours")), BOUND_S)
    await calls.drain(drain_ms=0, flush_ms=5_000)
    assert len(rig.records) == 2
    again = await asyncio.wait_for(calls.begin(wanted("ours")), BOUND_S)
    assert (again.text, again.error) == ("tidal", None)


async def test_a_remembered_reply_is_for_those_who_ask_the_same() -> None:
    rig = Rig(MODELS, a=says("tidal"))
    calls = registry(rig)
    asked = wanted("ours")
    for one in (asked, asked, asked.model_copy(update={"messages": OTHER})):
        await asyncio.wait_for(calls.begin(one), BOUND_S)
    assert len(rig.records) == 2
    key = CallKey.of(asked)
    for question in (digest(asked), None):  # an earlier release asks without one
        assert await calls.find(key, question) is not None
    assert await calls.find(key, "another") is None


async def test_a_call_in_progress_is_found_by_its_question() -> None:
    rig = Rig(MODELS, a=hangs())
    calls = registry(rig)
    asked = wanted("ours")
    reply = calls.begin(asked)
    assert await calls.find(CallKey.of(asked), digest(asked)) is reply
    assert await calls.find(CallKey.of(asked), "another") is None
    await calls.drain(drain_ms=0, flush_ms=5_000)


def test_the_digest_of_a_large_question_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [{"type": "text", "text": "\u00e9\n" * 200_000}]
    body = {"messages": [{"role": "user", "content": texts}], "stop": ["a"]}
    asked = wanted("ours").model_copy(
        update={"messages": (), "openai": OpenAIBody(path="chat/completions", body=body)}
    )
    in_parts = digest(asked)
    lengths: list[int] = []

    def noted(value: Any) -> Any:
        for part in parts(value):
            lengths.append(len(part))
            yield part

    monkeypatch.setattr(call_key, "parts", noted)
    assert digest(asked) == in_parts
    assert max(lengths) <= PART_CHARS * 2 < sum(lengths)
    monkeypatch.setattr(call_key, "LARGE_TOKENS", 10**9)
    assert digest(asked) == in_parts


def test_a_question_that_cannot_be_encoded_has_no_digest() -> None:
    assert digest(wanted("ours").model_copy(update={"context": {"a": object()}})) is None


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_failed_call_is_made_anew_for_a_caller_who_wants_it_so(keeps: bool) -> None:
    flaky = breaks()
    calls = registry(Rig(MODELS, a=flaky))
    failed = await asyncio.wait_for(calls.begin(wanted("ours"), keeps=lambda _: keeps), BOUND_S)
    flaky.behaviour = says("tidal").behaviour
    again = await asyncio.wait_for(calls.begin(wanted("ours"), keeps=lambda _: keeps), BOUND_S)
    assert (failed.error is None, again.error is None) == (False, not keeps)


@pytest.mark.parametrize(
    ("who", "field"),
    [
        ({"attempt": 2**40}, "attribution.attempt"),
        ({"attempt": -1}, "attribution.attempt"),
        ({"version": 2**31}, "attribution.version"),
        ({"run_id": "r\0"}, "attribution.run_id"),
        ({"run_id": "r" * 6_000}, "attribution.run_id"),
        ({"tenant": "t" * 6_000}, "attribution.tenant"),
        ({"step": "s" * 10_000}, "attribution.step"),
    ],
)
def test_a_call_that_could_not_be_booked_is_refused_before_it_is_made(
    who: dict[str, Any], field: str
) -> None:
    body = wanted("ours").model_dump(mode="json")
    body["attribution"] |= who
    with pytest.raises(CallMalformed) as refused:
        checked(CallRequest.model_construct(**body).model_dump_json(warnings=False).encode())
    assert refused.value.fields["field"] == field


def _over_nats(body: dict[str, Any], **fields: Any) -> CallRequest:
    asked = wanted("ours").model_dump(mode="json", exclude={"messages"})
    asked |= {"openai": {"path": "chat/completions", "body": body}, **fields}
    return checked(json.dumps(asked).encode())


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"n": 1_000}, "n"),
        ({"best_of": 2.5}, "best_of"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"messages": [7]}, "messages.0"),
        ({"tools": 7}, "tools"),
    ],
)
def test_a_body_of_openais_api_is_checked_as_over_http(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(CallMalformed) as refused:
        _over_nats({"messages": [{"role": "user", "content": "a"}], **wrong})
    assert refused.value.fields["field"] == f"openai.body.{field}"


def test_what_a_body_asks_for_counts_whatever_stands_beside_it() -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "n": 4.0, "max_tokens": 9_000.0}
    call = _over_nats(body, max_tokens=1, embed=["a"])
    assert (request_content.choices(call), request_content.max_tokens(call)) == (4, 9_000)
    assert not request_content.embeds(call)
    booked = used(call, Completion(), cut=True, goes_on=True, elapsed_ms=1.0)
    assert booked.output_tokens == 36_000


async def test_a_tenant_with_very_many_calls_leaves_places_for_the_next() -> None:
    rig = Rig(MODELS, a=hangs())
    calls = CallRegistry(rig.calls, GatewayMetrics(CollectorRegistry()), max_calls=16)

    numbers = itertools.count()

    def begin(tenant: str, count: int) -> int:
        begun = 0
        with suppress(GatewayFull):
            for _ in range(count):
                who = Attribution(tenant=tenant)
                calls.begin(request(f"c{next(numbers)}", attribution=who))
                begun += 1
        return begun

    assert begin("greedy", 100) == 12
    assert begin("modest", 3) == 3
    assert begin("third", 1) == 1
    assert begin("greedy", 1) == 0
    await calls.drain(drain_ms=0, flush_ms=5_000)
    assert begin("greedy", 100) == 12
    await calls.drain(drain_ms=0, flush_ms=5_000)


async def test_a_call_outlasts_a_request_that_joined_it_if_it_has_considerably_more_time() -> None:
    calls = registry(Rig(MODELS, a=hangs()))
    first = wanted("c")
    ends_ms = first.deadline_at_ms
    hasty = first.model_copy(update={"deadline_at_ms": ends_ms - OUTLASTS_MS})
    patient = first.model_copy(update={"deadline_at_ms": ends_ms - OUTLASTS_MS + 1})
    calls.begin(first)
    calls.begin(hasty)
    assert [calls.outlasts(one) for one in (hasty, patient, first)] == [True, False, False]
    assert calls.leave(first, "gone")  # the other one waits
    assert calls.outlasts(hasty)
    assert not calls.leave(hasty, "gone")
    await calls.drain(drain_ms=0, flush_ms=5_000)
