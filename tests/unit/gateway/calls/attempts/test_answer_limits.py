"""A call that sets no limit on its answer gets the one for which money is reserved."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.backends.protocol import Chunks
from hocket.gateway.core.budgets.budget_rules import BudgetRules
from hocket.gateway.core.calls.request_content import (
    WORST_OUTPUT_TOKENS,
    answer_tokens,
    limited,
    max_tokens,
)
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.protocols.anthropic.request import outgoing as anthropic_outgoing
from hocket.gateway.core.protocols.openai_api import outgoing
from hocket.schemas.messages import CallRequest, Completion
from support.gateway.routing_rig import Rig, Scripted, backend, breaks, request, says

BUDGET = {"budget_usd": "9"}
STRICT = BudgetRules(reserve="worst")
HELLO = [{"role": "user", "content": "hi"}]


def in_openais_shape(path: str = "chat/completions", **body: Any) -> CallRequest:
    content = {"prompt": "hi"} if path == "completions" else {"messages": HELLO}
    return request(messages=(), openai={"path": path, "body": {**content, **body}})


def models(**fields: Any) -> dict[str, Any]:
    return {"writer": {"backends": [backend("a", **fields)]}}


async def sent(rig: Rig, **fields: Any) -> CallRequest:
    assert (await rig.make(**fields)).error is None
    return rig.backends["a"].requests[0]


@pytest.mark.parametrize(
    ("config", "fields", "expected"),
    [
        ({}, BUDGET, WORST_OUTPUT_TOKENS),
        ({}, {}, None),
        ({}, {**BUDGET, "max_tokens": 9}, 9),
        ({"prices": {"request_usd": "0.1"}}, BUDGET, None),
        ({"max_output_tokens": 4_096}, BUDGET, 4_096),
        ({"max_output_tokens": 4_096}, {}, 4_096),
        ({"max_output_tokens": 4_096}, {"max_tokens": 9_000}, 9_000),
    ],
    ids=["budget", "none", "own", "by request", "configured", "always", "own beyond it"],
)
async def test_the_limit_that_is_reserved_is_sent_where_the_worst_case_is(
    config: dict[str, Any], fields: dict[str, Any], expected: int | None
) -> None:
    rig = Rig(models(**config), a=says("tidal"))
    rig.calls.spending.use(STRICT)
    assert (await sent(rig, **fields)).max_tokens == expected


@pytest.mark.parametrize(
    ("config", "expected"), [({}, None), ({"max_output_tokens": 4_096}, 4_096)]
)
async def test_where_the_expected_cost_is_reserved_only_a_configured_limit_is_sent(
    config: dict[str, Any], expected: int | None
) -> None:
    """A limit beyond what its model can do would make a backend refuse the call."""
    rig = Rig(models(**config), a=says("tidal"))
    assert (await sent(rig, **BUDGET)).max_tokens == expected


@pytest.mark.parametrize(
    ("configured", "fits"), [(4_096, True), (900_000, True), (2_000_000, False)]
)
async def test_the_configured_limit_is_what_is_reserved(configured: int, fits: bool) -> None:
    rig = Rig(models(max_output_tokens=configured), a=says("tidal"))
    reply = await rig.make(budget_usd="1")
    assert (reply.error is None) is fits


async def test_the_longest_limit_of_the_replicas_is_reserved_and_each_gets_its_own() -> None:
    first, second = (backend(name, max_output_tokens=most) for name, most in (("a", 10), ("b", 99)))
    rig = Rig({"writer": {"backends": [first, second]}}, a=breaks(), b=says("tidal"))
    assert (await rig.make(**BUDGET)).text == "tidal"
    asked = {name: rig.backends[name].requests[0].max_tokens for name in "ab"}
    assert asked == {"a": 10, "b": 99}
    refused = (await rig.make("d", budget_usd="0.00005")).error
    assert refused is not None
    assert Decimal(refused.details["expected_usd"]) >= Decimal("0.000099")


async def test_answers_as_long_as_they_may_be_do_not_overrun_a_strict_budget() -> None:
    """Of an engine that writes to its limit or, without one, to the end of its context."""

    async def writes_on(call: CallRequest, _: Chunks | None) -> Completion:
        return Completion(text="x", input_tokens=3, output_tokens=max_tokens(call) or 131_072)

    prices = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "10"}
    rig = Rig(models(prices=prices), a=Scripted(writes_on))
    rig.calls.spending.use(STRICT)
    for number in range(12):
        call = in_openais_shape(ignore_eos=True)
        await rig.make(f"c{number}", messages=(), openai=call.openai, budget_usd="1")
    assert Decimal("0.8") < sum(one.cost_usd for one in rig.records) <= Decimal(1)


@pytest.mark.parametrize(
    ("call", "limit"),
    [
        (in_openais_shape(), 16_384),
        (in_openais_shape(max_tokens=None), 16_384),
        (in_openais_shape(max_tokens=-1), 16_384),
        (in_openais_shape(max_completion_tokens=7), 7),
        (in_openais_shape(min_tokens=20_000), 20_000),
        (in_openais_shape(ignore_eos=True, n=3), 16_384),
        (in_openais_shape(thinking={"type": "enabled", "budget_tokens": 1_000}), 17_384),
        (in_openais_shape("completions", max_tokens=-1), 16_384),
    ],
)
def test_the_limit_of_a_body_goes_out_as_it_was_reserved(call: CallRequest, limit: int) -> None:
    made = limited(call, WORST_OUTPUT_TOKENS)
    assert answer_tokens(made, 1) == answer_tokens(call, WORST_OUTPUT_TOKENS) == limit
    for field in ("max_tokens", "max_completion_tokens"):
        body = outgoing(made, "m", stream=False, limit_field=field)
        found = {body.get(name) for name in ("max_tokens", "max_completion_tokens")} - {None}
        assert found == {limit}
        assert "max_output_tokens" not in body


@pytest.mark.parametrize("path", ["completions", "embeddings"])
def test_what_its_api_bounds_itself_gets_no_limit(path: str) -> None:
    call = in_openais_shape(path)
    assert limited(call, WORST_OUTPUT_TOKENS) is call


def test_anthropics_api_gets_the_configured_limit() -> None:
    body = outgoing(limited(request(), 4_096), "m", stream=False)
    assert anthropic_outgoing(body, frozenset(), stream=False).body["max_tokens"] == 4_096


@pytest.mark.parametrize("value", [0, -1, "9", 1.5])
def test_a_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(RoutingInvalid) as caught:
        Rig(models(max_output_tokens=value), a=says("tidal"))
    assert caught.value.fields["field"].endswith("max_output_tokens")
