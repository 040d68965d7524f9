"""Calls are held to the rates of their tenant and model."""

import asyncio
from typing import Any

import pytest

from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.errors import CallStopped, ModelRateReached
from hocket.gateway.core.rates.rules import Account, RateRule, RateRules, read
from hocket.gateway.rates import model_rates
from hocket.gateway.rates.model_rates import ModelRates
from hocket.schemas.messages import (
    Attribution,
    CallRequest,
    ChatMessage,
    OpenAIBody,
)

NOW_MS = 1_800_000_000_000.0


class Rates:
    """Rates with a clock that stands still."""

    def __init__(self, *section: dict[str, Any], gateways: int = 1) -> None:
        self.now_ms = NOW_MS
        self.rates = ModelRates(read(list(section), {}), lambda: self.now_ms, lambda: gateways)

    def request(self, tenant: str = "acme", *, within_s: float = 1.0, **fields: Any) -> CallRequest:
        return CallRequest(
            call_id="c",
            model="writer",
            messages=(ChatMessage(role="user", content="x" * 400),),
            deadline_at_ms=self.now_ms + 1_000 * within_s,
            attribution=Attribution(tenant=tenant),
            **fields,
        )

    async def admit(self, tenant: str = "acme", **fields: Any) -> Any:
        return await self.rates.admit(self.request(tenant, **fields), "writer", Cancellation())

    async def refused(self, tenant: str = "acme", **fields: Any) -> ModelRateReached:
        with pytest.raises(ModelRateReached) as raised:
            await self.admit(tenant, **fields)
        return raised.value


async def test_a_tenant_gets_as_many_requests_as_its_rate_and_the_next_when_a_minute_is_over() -> (
    None
):
    rig = Rates({"tenant": "*", "model": "writer", "requests_per_min": 2})
    await rig.admit()
    await rig.admit()
    error = await rig.refused()
    assert error.fields["retry_at_ms"] == NOW_MS + 60_100
    await rig.admit("globex")
    rig.now_ms += 60_100
    await rig.admit()


async def test_tokens_are_counted_as_expected_and_then_as_they_were() -> None:
    rig = Rates({"tenant": "acme", "tokens_per_min": 1_000})
    admission = await rig.admit(max_tokens=700)  # and about 100 of the prompt
    await rig.refused(max_tokens=200)
    rig.rates.settle(admission, 100)
    (state,) = rig.rates.states()
    assert (state.requests, state.tokens) == (1, 100)
    await rig.admit(max_tokens=700)


async def test_a_call_that_came_to_nothing_has_used_no_tokens() -> None:
    rig = Rates({"tenant": "acme", "tokens_per_min": 1_000})
    rig.rates.settle(await rig.admit(max_tokens=700), 0)
    await rig.admit(max_tokens=700)


async def test_a_call_that_takes_minutes_counts_while_it_lasts_and_a_minute_longer() -> None:
    rig = Rates({"tenant": "acme", "tokens_per_min": 1_000, "beyond": "refuse"})
    admission = await rig.admit(max_tokens=700)
    rig.now_ms += 150_000
    await rig.refused(max_tokens=200)
    rig.rates.settle(admission, 50_000)
    assert rig.rates.states()[0].tokens == 20_000, "in its last minute"
    assert (await rig.refused(max_tokens=1)).fields["retry_at_ms"] == rig.now_ms + 60_100
    rig.rates.add(admission, 30)  # of a request that ended after the call
    assert rig.rates.states()[0].tokens == 20_012
    rig.now_ms += 60_100
    await rig.admit(max_tokens=700)


async def test_a_call_that_took_less_than_a_minute_counts_from_its_beginning() -> None:
    rig = Rates({"tenant": "acme", "tokens_per_min": 1_000, "beyond": "refuse"})
    admission = await rig.admit(max_tokens=700)
    rig.now_ms += 30_000
    rig.rates.settle(admission, 400)
    rig.rates.add(admission, 400)  # of a request that ended after the call
    await rig.refused(max_tokens=700)
    rig.now_ms += 30_100
    await rig.admit(max_tokens=700)


async def test_who_waits_for_a_call_of_over_a_minute_looks_again_rarely() -> None:
    rig = Rates({"tenant": "acme", "tokens_per_min": 1_000, "beyond": "refuse"})
    await rig.admit(max_tokens=700)
    rig.now_ms += 150_000
    error = await rig.refused(max_tokens=700)
    assert error.fields["retry_at_ms"] == rig.now_ms + 5_000
    assert "at the earliest" in str(error)


async def test_each_gateway_holds_long_calls_to_its_own_part_of_a_rate() -> None:
    rig = Rates({"tenant": "acme", "tokens_per_min": 3_000}, gateways=3)
    admission = await rig.admit(max_tokens=700)
    rig.now_ms += 150_000
    await rig.refused(max_tokens=200)
    rig.rates.settle(admission, 100)
    await rig.admit(max_tokens=700)


async def test_a_call_waits_for_its_turn_within_its_deadline() -> None:
    rig = Rates({"tenant": "acme", "requests_per_min": 1})
    await rig.admit()
    rig.now_ms += 60_090  # a hundredth of a second is left
    rig.now_ms -= 50
    waiting = asyncio.create_task(rig.admit(within_s=5))
    await asyncio.sleep(0)  # it begins
    assert rig.rates.states()[0].waiting == 1
    rig.now_ms += 60
    assert await waiting is not None
    assert rig.rates.states()[0].waiting == 0


async def test_one_that_is_stopped_while_it_waits_uses_nothing() -> None:
    rig = Rates({"tenant": "acme", "requests_per_min": 1})
    await rig.admit()
    stopped = Cancellation()
    request = rig.request(within_s=120)
    waiting = asyncio.create_task(rig.rates.admit(request, "writer", stopped))
    await asyncio.sleep(0)  # it begins
    assert rig.rates.states()[0].waiting == 1
    stopped.cancel("enough")
    with pytest.raises(CallStopped):
        await waiting
    (state,) = rig.rates.states()
    assert (state.requests, state.waiting) == (1, 0)


async def test_a_rule_that_refuses_lets_nobody_wait() -> None:
    rig = Rates({"model": "writer", "requests_per_min": 1, "beyond": "refuse"})
    await rig.admit()
    assert (await rig.refused("globex", within_s=120)).code == "model_rate_reached"


async def test_a_rule_that_refuses_and_has_room_lets_a_call_wait_for_another_rule() -> None:
    rig = Rates(
        {"tenant": "acme", "requests_per_min": 1},
        {"model": "writer", "requests_per_min": 2, "beyond": "refuse"},
    )
    await rig.admit()
    rig.now_ms += 60_080
    waiting = asyncio.create_task(rig.admit(within_s=5))
    await asyncio.sleep(0)  # it begins
    assert [state.waiting for state in rig.rates.states()] == [1, 1]
    rig.now_ms += 60
    assert await waiting is not None
    await rig.admit("globex")
    await rig.refused("globex", within_s=120)


async def test_two_rules_for_each_of_a_kind_count_a_call_of_both_once_each() -> None:
    rig = Rates(
        {"tenant": "acme", "model": "*", "requests_per_min": 3},
        {"tenant": "*", "model": "writer", "requests_per_min": 4},
    )
    for _ in range(3):
        await rig.admit()
    await rig.refused()
    states = [(state.requests_per_min, state.requests) for state in rig.rates.states()]
    assert states == [(3, 3), (4, 3)]


async def test_only_rates_in_force_are_shown_with_their_present_limits() -> None:
    rig = Rates(
        {"tenant": "acme", "requests_per_min": 5}, {"model": "writer", "requests_per_min": 9}
    )
    await rig.admit()
    changed = {"tenant": "acme", "requests_per_min": 7, "tokens_per_min": 80, "beyond": "refuse"}
    rig.rates.use(read([changed], {}))
    (state,) = rig.rates.states()
    assert (state.tenant, state.model, state.requests) == ("acme", None, 1)
    assert (state.requests_per_min, state.tokens_per_min, state.beyond) == (7, 80, "refuse")
    rig.rates.use(read([{"model": "writer", "requests_per_min": 9}], {}))
    (state,) = rig.rates.states()
    assert (state.tenant, state.model, state.requests) == (None, "writer", 1), "it stays counted"


async def test_accounts_without_a_rate_in_force_take_no_place_among_those_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_rates, "MAX_SHOWN", 2)
    rig = Rates({"tenant": "*", "requests_per_min": 5})
    for tenant in ("acme", "globex", "hooli", "initech"):
        await rig.admit(tenant)
    rig.rates.use(
        read([{"tenant": name, "requests_per_min": 6} for name in ("acme", "globex")], {})
    )
    assert [state.tenant for state in rig.rates.states()] == ["acme", "globex"]
    rig.rates.use(read([{"tenant": "*", "requests_per_min": 5}], {}))
    assert [state.tenant for state in rig.rates.states()] == ["hooli", "initech"]


async def test_the_rule_of_an_account_is_looked_up_once_for_each_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Account] = []
    of_account = RateRules.of_account

    def counted(rules: RateRules, account: Account) -> tuple[RateRule, ...]:
        asked.append(account)
        return of_account(rules, account)

    monkeypatch.setattr(RateRules, "of_account", counted)
    rig = Rates({"tenant": "*", "requests_per_min": 5})
    for tenant in ("acme", "globex"):
        await rig.admit(tenant)
    for limit in (5, 6):
        rig.rates.use(read([{"tenant": "*", "requests_per_min": limit}], {}))
        for _ in range(3):
            assert [state.requests_per_min for state in rig.rates.states()] == [limit, limit]
    assert asked == 2 * [("globex", None), ("acme", None)]


async def test_gateways_share_a_rate_evenly() -> None:
    rig = Rates({"tenant": "acme", "requests_per_min": 7}, gateways=3)
    await rig.admit()
    await rig.admit()
    await rig.refused()


async def test_a_call_of_which_one_account_has_no_room_takes_nothing_of_the_others() -> None:
    rig = Rates(
        {"tenant": "acme", "requests_per_min": 1}, {"model": "writer", "requests_per_min": 2}
    )
    await rig.admit()
    await rig.refused()
    await rig.admit("globex")


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("chat/completions", {"n": 100, "max_tokens": 50}, 5_000),
        ("completions", {"prompt": [""] * 30, "n": 2, "max_completion_tokens": 50}, 3_030),
        ("chat/completions", {"n": 10}, 2_560),
        ("chat/completions", {"n": 2, "min_tokens": 5_000}, 10_000),
        ("chat/completions", {"ignore_eos": True}, 16_384),
        ("embeddings", {"input": ""}, 0),
    ],
)
async def test_every_answer_that_a_call_asks_for_is_expected(
    path: Any, body: dict[str, Any], expected: int
) -> None:
    rig = Rates({"tenant": "acme", "tokens_per_min": 100_000})
    admission = await rig.admit(openai=OpenAIBody(path=path, body=body))
    assert admission.expected == 101 + expected
