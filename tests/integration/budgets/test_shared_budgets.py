"""Budgets that several gateways share, over real NATS: together they spend one budget and not more."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from hocket.gateway.accounting import account_sync, budget_store, cost_history, spent_before
from hocket.gateway.accounting.budget_store import BudgetStore
from hocket.gateway.accounting.cost_history import CostHistory
from hocket.gateway.accounting.run_budgets import RunBudgetUnknown
from hocket.gateway.accounting.shared_budgets import SharedBudgets
from hocket.gateway.accounting.spending import Spending
from hocket.gateway.accounting.spent_before import SpentBefore
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.budget import Reservation
from hocket.gateway.core.budgets.budget_rules import Allowance, BudgetRules
from hocket.gateway.core.budgets.estimate import Estimator, cost_kind
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.errors import BudgetExceeded
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import (
    Attribution,
    CallRequest,
    ChatMessage,
    RootBudget,
    SpentAsked,
    SpentTold,
)

BOUND_S = 60.0
KIND = ("writer", "report", "draft")
PRICES = Prices(Decimal(1), Decimal(1_000))
"""A token of output costs 0.001 USD."""
MOST_TOKENS = 20
NO_RULES = BudgetRules()


@dataclass
class Neighbours:
    """The gateways that live."""

    name: str
    live: frozenset[str] = frozenset()
    is_leased: bool = True


class Ledger(SpentBefore):
    """A ledger that says what the test says."""

    def __init__(self, bus: Bus, told: dict[str, SpentTold]) -> None:
        super().__init__(bus)
        self.told = told
        self.asked = 0
        self.knows_after = 0
        """How often it is asked before it knows."""

    async def ask(
        self, asked: SpentAsked, waits_ms: float = 0.0, *, is_long: bool = False
    ) -> SpentTold | None:
        self.asked += 1
        label = "".join(asked.labels or ())
        if self.asked <= self.knows_after:
            return SpentTold(spent_usd=Decimal(0))
        return self.told.get(asked.run_id or asked.pipeline or label or asked.tenant)


@dataclass
class House:
    """Gateways that share one bucket."""

    bus: Bus
    rules: BudgetRules = NO_RULES
    seals: Capabilities | None = None
    told: dict[str, SpentTold] = field(default_factory=dict)
    gateways: dict[str, Spending] = field(default_factory=dict)
    peers: dict[str, Neighbours] = field(default_factory=dict)
    knows_after: int = 0

    def starts(self, name: str) -> Spending:
        peers = self.peers[name] = Neighbours(name)
        store = BudgetStore(self.bus, self.seals)
        ledger = Ledger(self.bus, self.told)
        ledger.knows_after = self.knows_after
        shared = SharedBudgets(store, ledger, peers)
        self.gateways[name] = Spending(self.rules, clock.now_ms, shared)
        self._tell()
        return self.gateways[name]

    async def stops(self, name: str) -> None:
        await self.gateways[name].close(BOUND_S)
        self.dies(name)

    def dies(self, name: str) -> None:
        del self.gateways[name], self.peers[name]
        self._tell()

    def _tell(self) -> None:
        for one in self.peers.values():
            one.live = frozenset(self.peers)


@asynccontextmanager
async def house(bus: Bus, **fields: Any) -> AsyncIterator[House]:
    await BudgetStore(bus).open()
    running = House(bus, **fields)
    yield running
    for name in list(running.gateways):
        await running.stops(name)


def request(**fields: Any) -> CallRequest:
    return CallRequest.model_validate(
        {
            "call_id": "c",
            "model": "writer",
            "messages": (ChatMessage(role="user", content="How often?"),),
            "max_tokens": MOST_TOKENS,
            "deadline_at_ms": clock.now_ms() + 1_000 * BOUND_S,
            "attribution": Attribution(tenant="acme", run_id="r1", pipeline="report"),
            **fields,
        }
    )


async def spends(gateway: Spending, tokens: int, **fields: Any) -> Decimal:
    """Make a call of so many tokens and return what it cost; 0 where no budget has room for it."""
    call = request(**fields)
    try:
        held = await gateway.reserve(call, KIND, [PRICES], Cancellation())
    except BudgetExceeded:
        return Decimal(0)
    await asyncio.sleep(0)
    cost_usd = Decimal(tokens) / 1_000
    gateway.learn(call, KIND, PRICES, cost_usd)
    gateway.settle(held, cost_usd)
    return cost_usd


@pytest.mark.parametrize("level", ["run", "label", "tenant"])
async def test_a_thousand_calls_at_four_gateways_spend_one_budget_and_not_more(
    bus: Bus, level: str
) -> None:
    dice = random.Random(17)
    limit = Allowance(Decimal(4), "month")
    rules = {
        "run": NO_RULES,
        "label": BudgetRules(labels={"team=*": limit}),
        "tenant": BudgetRules(tenants={"acme": limit}),
    }[level]
    given: dict[str, Any] = {"budget_usd": "4"} if level == "run" else {}
    if level == "label":
        given["attribution"] = Attribution(tenant="acme", labels={"team": "search"})
    async with house(bus, rules=rules) as running:
        for number in range(4):
            running.starts(f"g{number}")
        async with asyncio.timeout(BOUND_S):
            costs = await asyncio.gather(
                *(
                    spends(
                        running.gateways[f"g{number % 4}"], dice.randint(1, MOST_TOKENS), **given
                    )
                    for number in range(1_000)
                )
            )
        spent_usd = sum(costs)
    assert Decimal("3.8") <= spent_usd <= 4 + Decimal(MOST_TOKENS) / 1_000
    assert sum(cost > 0 for cost in costs) > 300


async def test_a_ledger_that_was_away_when_an_account_began_is_asked_again(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spent_before, "METERED_MS", -1.0)
    rules = BudgetRules(tenants={"acme": Allowance(Decimal(10_000), "month")})
    async with house(bus, rules=rules) as running:
        gateway = running.starts("one")
        assert await spends(gateway, MOST_TOKENS)
        running.told["acme"] = SpentTold(spent_usd=Decimal(20_000))
        async with asyncio.timeout(BOUND_S):
            while await spends(gateway, MOST_TOKENS):  # noqa: ASYNC110 (a write to NATS ends it)
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("order", ["side by side", "one after the other"])
async def test_ten_sub_runs_at_four_gateways_spend_the_budget_at_the_top_and_not_more(
    bus: Bus, order: str
) -> None:
    dice = random.Random(17)
    top = {"run_id": "top", "budget_usd": "4"}
    async with house(bus) as running:
        for number in range(4):
            running.starts(f"g{number}")

        async def call(number: int) -> Decimal:
            who = Attribution(tenant="acme", run_id=f"below{number % 10}")
            given: dict[str, Any] = {"budget_usd": "4", "root_budget": top, "attribution": who}
            gateway = running.gateways[f"g{number % 4}"]
            return await spends(gateway, dice.randint(1, MOST_TOKENS), **given)

        async with asyncio.timeout(BOUND_S):
            if order == "side by side":
                costs = await asyncio.gather(*(call(number) for number in range(1_000)))
            else:
                costs = [await call(number) for number in range(500)]
        # the run at the top has nothing left for calls of its own
        mine = Attribution(tenant="acme", run_id="top")
        own = [await spends(one, 20, budget_usd="4", attribution=mine) for one in _all(running)]
    assert Decimal("3.8") <= sum(costs) <= 4 + Decimal(MOST_TOKENS) / 1_000
    assert sum(costs) + sum(own) <= 4 + Decimal(MOST_TOKENS) / 1_000


async def test_what_a_sub_run_knows_to_be_spent_is_spent_of_the_budget_at_the_top(bus: Bus) -> None:
    top = {"run_id": "top", "budget_usd": "1"}
    who = Attribution(tenant="acme", run_id="below")
    known = {"budget_usd": "0.5", "budget_left_usd": "0.03", "root_budget": top, "attribution": who}
    mine = Attribution(tenant="acme", run_id="top")
    async with house(bus) as running:
        gateway = running.starts("one")
        assert await spends(gateway, 20, **known)
        # 0.97 of 1 USD was spent before that call, though the sub-run's own budget was 0.5
        assert not await spends(gateway, 20, budget_usd="1", attribution=mine)


async def test_calls_of_the_http_door_for_a_sub_run_spend_from_the_budget_at_the_top(
    bus: Bus,
) -> None:
    below = ["r" + 24 * letter for letter in "de"]
    root = RootBudget(run_id="top", budget_usd=Decimal("0.05"))
    told = {
        run_id: SpentTold(
            spent_usd=Decimal(0), run_known=True, budget_usd=Decimal("0.05"), root_budget=root
        )
        for run_id in below
    }
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    async with house(bus, told=told) as running:
        gateway = running.starts("one")
        costs = [
            await spends(
                gateway,
                20,
                attribution=Attribution(tenant="acme", run_id=run_id),
                openai=body,
                messages=(),
            )
            for run_id in below * 2
        ]
    assert sum(costs) == Decimal("0.04")


@pytest.mark.parametrize("level", ["the top", "a label"])
async def test_a_call_of_the_http_door_after_a_workers_spends_from_every_budget_of_the_run(
    bus: Bus, level: str
) -> None:
    run_id, labels = "r" + 24 * "f", {"team": "search"}
    root = RootBudget(run_id="top", budget_usd=Decimal("0.05")) if level == "the top" else None
    limit = Allowance(Decimal("0.05"), "month")
    rules = NO_RULES if root else BudgetRules(labels={"team=search": limit})
    nothing = SpentTold(spent_usd=Decimal(0))
    of_run = {"run_known": True, "budget_usd": 5, "labels": labels, "root_budget": root}
    told = {run_id: nothing.model_copy(update=of_run), "team": nothing}
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    worker = Attribution(tenant="acme", run_id=run_id, labels=labels)
    who = Attribution(tenant="acme", run_id=run_id)
    async with house(bus, rules=rules, told=told) as running:
        gateway = running.starts("one")
        costs = [
            await spends(gateway, 20, attribution=worker, budget_usd="5", root_budget=root),
            *[await spends(gateway, 20, attribution=who, openai=body, messages=()) for _ in "123"],
        ]
    assert sum(costs) == Decimal("0.04")


@pytest.mark.parametrize("left_out", ["nothing", "the budget at the top", "both budgets"])
async def test_a_guest_that_leaves_out_what_it_was_told_of_budgets_spends_no_more_for_it(
    bus: Bus, left_out: str
) -> None:
    below = ["r" + 24 * letter for letter in "de"]
    root = RootBudget(run_id="top", budget_usd=Decimal("0.05"))
    told = {
        run_id: SpentTold(
            spent_usd=Decimal(0), run_known=True, budget_usd=Decimal("0.05"), root_budget=root
        )
        for run_id in below
    }
    brought: dict[str, Any] = {"budget_usd": "0.05", "root_budget": root}
    if left_out != "nothing":
        del brought["root_budget"]
    if left_out == "both budgets":
        brought["budget_usd"] = "1000"
    async with house(bus, told=told, knows_after=2) as running:
        gateway = running.starts("one")
        costs = []
        for run_id in below * 3:
            who = Attribution(tenant="acme", run_id=run_id)
            stored = await gateway.runs.as_stored(request(attribution=who, **brought))
            fields = {"budget_usd": stored.budget_usd, "root_budget": stored.root_budget}
            costs.append(await spends(gateway, 20, attribution=who, **fields))
    assert sum(costs) == Decimal("0.04")


@pytest.mark.parametrize("level", ["pipeline", "label"])
async def test_a_guest_that_names_another_pipeline_or_label_spends_from_those_of_its_run(
    bus: Bus, level: str
) -> None:
    run_id, nothing = "r" + 24 * "d", SpentTold(spent_usd=Decimal(0))
    limit = Allowance(Decimal("0.05"), "month")
    rules = {
        "pipeline": BudgetRules(pipelines={"report": limit}),
        "label": BudgetRules(labels={"team=search": limit}),
    }[level]
    of_run = {"run_known": True, "pipeline": "report", "labels": {"team": "search"}}
    told = {run_id: nothing.model_copy(update=of_run), "report": nothing, "team": nothing}
    claimed = Attribution(
        tenant="acme", run_id=run_id, pipeline="other", labels={"team": "x", "tier": "y"}
    )
    async with house(bus, rules=rules, told=told) as running:
        gateway = running.starts("one")
        costs = []
        for _ in range(3):
            stored = await gateway.runs.as_stored(request(attribution=claimed))
            costs.append(await spends(gateway, 20, attribution=stored.attribution))
    who = stored.attribution
    assert (who.pipeline, who.labels) == ("report", {"team": "search"})
    assert sum(costs) == Decimal("0.04")


def _all(running: House) -> list[Spending]:
    return list(running.gateways.values())


async def test_a_gateway_that_starts_again_knows_what_was_spent_and_what_calls_cost(
    bus: Bus,
) -> None:
    async with house(bus) as running:
        first = running.starts("before")
        for _ in range(4):
            assert await spends(first, 10, budget_usd="0.05")
        assert not await spends(first, 10, budget_usd="0.045")
        await running.stops("before")
        again = running.starts("after")
        # the worst case of 20 tokens does not fit into what is left: it is known that calls cost 10
        assert await spends(again, 10, budget_usd="0.05")
        assert not await spends(again, 10, budget_usd="0.05")


async def test_what_a_killed_gateway_had_claimed_counts_as_spent(bus: Bus) -> None:
    async with house(bus) as running:
        killed = running.starts("killed")
        held = await killed.reserve(request(budget_usd="0.05"), KIND, [PRICES], Cancellation())
        assert held is not None
        running.dies("killed")
        alive = running.starts("alive")
        costs = [await spends(alive, MOST_TOKENS, budget_usd="0.05") for _ in range(3)]
    assert sum(costs) == Decimal(MOST_TOKENS) / 1_000


async def test_a_killed_gateway_costs_no_more_than_its_calls_could_and_the_spare_claim(
    bus: Bus,
) -> None:
    """It had learned from a long answer of the same kind, too."""
    rules = BudgetRules(tenants={"acme": Allowance(Decimal(2), "day")})
    async with house(bus, rules=rules) as running:
        killed = running.starts("killed")
        for _ in range(30):
            assert await spends(killed, 19)
        killed.learn(request(max_tokens=10_000), KIND, PRICES, Decimal(10))
        held = [await killed.reserve(request(), KIND, [PRICES], Cancellation()) for _ in range(6)]
        assert all(held)
        running.dies("killed")
        alive = running.starts("alive")
        assert await spends(alive, MOST_TOKENS)
        left = alive.left_usd(request())
    spent_usd = (30 * 19 + MOST_TOKENS) / Decimal(1_000)
    in_progress_usd = 6 * Decimal("0.0201")
    spare_usd = account_sync.SPARE_SHARE * 2
    assert left is not None
    assert left >= 2 - spent_usd - in_progress_usd - spare_usd


async def test_a_gateway_waits_for_what_others_claim_and_gets_what_they_do_not_spend(
    bus: Bus,
) -> None:
    async with house(bus) as running:
        first, second = running.starts("first"), running.starts("second")
        held = await first.reserve(request(budget_usd="0.03"), KIND, [PRICES], Cancellation())
        waits = asyncio.create_task(spends(second, 1, budget_usd="0.03"))
        async with asyncio.timeout(BOUND_S):
            while not second.waiting:  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0)
        assert not waits.done()
        first.settle(held, Decimal("0.001"))
        assert await asyncio.wait_for(waits, BOUND_S) == Decimal("0.001")


async def test_what_the_ledger_has_of_a_run_counts_where_no_gateway_knows_it(bus: Bus) -> None:
    told = {"mine": SpentTold(spent_usd=Decimal("0.9"))}
    who = Attribution(tenant="acme", run_id="mine")
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    call: dict[str, Any] = {"attribution": who, "openai": body, "messages": ()}
    async with house(bus, told=told) as running:
        gateway = running.starts("one")
        assert not await spends(gateway, 10, budget_usd="0.91", **call)
        assert await spends(gateway, 10, budget_usd="1", **call)


@pytest.mark.parametrize("level", ["pipeline", "label", "tenant"])
async def test_what_tools_charged_counts_at_the_next_call_of_every_gateway(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setattr(spent_before, "METERED_MS", 0.0)
    limit = Allowance(Decimal("0.1"), "month")
    rules = {
        "tenant": BudgetRules(tenants={"acme": limit}),
        "pipeline": BudgetRules(pipelines={"report": limit}),
        "label": BudgetRules(labels={"team=search": limit}),
    }[level]
    name = {"tenant": "acme", "pipeline": "report", "label": "team"}[level]
    labels = {"team": "search"}
    who = Attribution(tenant="acme", run_id="r1", pipeline="report", labels=labels)
    told: dict[str, SpentTold] = {}
    async with house(bus, rules=rules, told=told) as running:
        first, second = running.starts("first"), running.starts("second")
        assert await spends(first, 10, attribution=who)
        told[name] = SpentTold(spent_usd=Decimal(0), tools_usd=Decimal("0.05"))
        assert await spends(first, 10, attribution=who)
        assert await spends(second, 10, attribution=who)
        told[name] = SpentTold(spent_usd=Decimal(0), tools_usd=Decimal("0.07"))
        assert not await spends(first, 10, attribution=who)
        assert not await spends(second, 10, attribution=who)
        await running.stops("first")
        del told[name]  # what is in the bucket is not forgotten
        assert not await spends(running.starts("third"), 10, attribution=who)


async def test_a_call_of_the_http_door_spends_from_the_budget_of_the_run_that_it_names(
    bus: Bus,
) -> None:
    run_id = "r" + 24 * "a"
    told = {
        run_id: SpentTold(spent_usd=Decimal("0.06"), run_known=True, budget_usd=Decimal("0.101"))
    }
    who = Attribution(tenant="acme", run_id=run_id)
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    async with house(bus, told=told) as running:
        gateway = running.starts("one")
        door: dict[str, Any] = {"attribution": who, "openai": body, "messages": ()}
        assert await spends(gateway, 20, **door)
        # a worker's call of the same run, whose coordinator does not know of the others
        assert await spends(gateway, 20, attribution=who, budget_usd="0.101")
        assert not await spends(gateway, 20, **door)
        assert not await spends(gateway, 20, budget_usd="5", **door)


# ---- what was spent besides the gateways ------------------------------------------------------


@pytest.mark.parametrize("gateways", [1, 3])
@pytest.mark.parametrize("level", ["the run", "the top"])
async def test_what_a_tool_charged_counts_beside_the_calls_that_follow(
    bus: Bus, gateways: int, level: str
) -> None:
    """Their caller knows of it from when its step began, and not of its own calls."""
    top = {"run_id": "top", "budget_usd": "1"} if level == "the top" else None
    given: dict[str, Any] = {"budget_usd": "1", "root_budget": top}
    async with house(bus) as running:
        all_of_them = [running.starts(f"g{number}") for number in range(gateways)]
        for gateway in all_of_them:
            assert await spends(gateway, 20, **given)
        before_usd = Decimal("0.02") * gateways
        await asyncio.sleep(2 * account_sync.FLUSH_S)
        left_usd = Decimal(1) - before_usd - Decimal("0.5")
        given["budget_left_usd"] = str(left_usd)
        spent_usd = Decimal(0)
        for number in range(60):
            spent_usd += await spends(all_of_them[number % gateways], 20, **given)
        assert left_usd - Decimal("0.02") * gateways <= spent_usd <= left_usd
        # nor does a gateway that starts now have more to spend, or one that is asked by another step
        gone = running.starts("late")
        given["budget_left_usd"] = str(left_usd - spent_usd)
        for gateway in (gone, *all_of_them):
            spent_usd += await spends(gateway, 20, **given)
    assert spent_usd <= left_usd


async def test_what_other_gateways_spent_is_not_taken_for_charges_of_tools(bus: Bus) -> None:
    """A caller may know of it before this gateway has read it."""
    async with house(bus) as running:
        first, second = running.starts("first"), running.starts("second")
        assert await spends(second, 20, budget_usd="1")
        spent_usd = Decimal("0.02")
        for number in range(48):
            gateway = (first, second)[number % 2]
            left_usd = str(Decimal(1) - spent_usd)
            cost_usd = await spends(gateway, 20, budget_usd="1", budget_left_usd=left_usd)
            assert cost_usd, f"{spent_usd} are spent"
            spent_usd += cost_usd
    assert spent_usd == Decimal("0.98")


async def test_what_a_restarted_gateway_is_told_of_a_tool_counts_once(bus: Bus) -> None:
    given = {"budget_usd": "0.205", "budget_left_usd": "0.105"}
    told: dict[str, SpentTold] = {}
    who = Attribution(tenant="acme", run_id="r1")
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    async with house(bus, told=told) as running:
        gateway = running.starts("one")
        assert await spends(gateway, 20, **given)  # 0.04 of calls, and 0.06 of tools, say
        await running.stops("one")
        told["r1"] = SpentTold(spent_usd=Decimal("0.06"), tools_usd=Decimal("0.06"))
        for name in ("two", "three"):
            gateway = running.starts(name)
            door = {"attribution": who, "openai": body, "messages": (), "budget_usd": "0.205"}
            assert await spends(gateway, 20, **door)
            assert await spends(gateway, 20, **given)
            await running.stops(name)
        # 0.04 + 0.06 + 5 calls
        assert not await spends(running.starts("four"), 20, **given)


@pytest.mark.parametrize("has_calls", [False, True])
async def test_what_tools_charged_to_a_run_counts_at_once_for_calls_of_the_http_door(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, has_calls: bool
) -> None:
    monkeypatch.setattr(spent_before, "RUN_METERED_MS", -1.0)
    monkeypatch.setattr(spent_before, "PAUSE_FACTOR", 0)
    run_id = "r" + 24 * "e"
    of_run = SpentTold(
        spent_usd=Decimal(0), run_known=True, budget_usd=Decimal("0.1"), tools_usd=Decimal(0)
    )
    told = {run_id: of_run}
    who = Attribution(tenant="acme", run_id=run_id)
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    door: dict[str, Any] = {"attribution": who, "openai": body, "messages": ()}
    async with house(bus, told=told) as running:
        gateway = running.starts("one")
        if has_calls:
            assert await spends(gateway, 20, **door)
            told[run_id] = of_run.model_copy(update={"spent_usd": Decimal("0.02")})
            assert await spends(gateway, 20, **door)
        tools_usd = Decimal("0.05") if has_calls else Decimal("0.09")
        told[run_id] = of_run.model_copy(update={"tools_usd": tools_usd})
        assert not await spends(gateway, 20, **door)
        assert not await spends(running.starts("two"), 20, **door)


async def test_a_call_that_names_a_run_is_not_made_while_nobody_says_what_the_run_has_spent(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spent_before, "PATIENCE_S", 0.3)
    run_id = "r" + 24 * "f"
    told = {run_id: SpentTold(spent_usd=Decimal(0), run_known=True, budget_usd=Decimal("0.1"))}
    who = Attribution(tenant="acme", run_id=run_id)
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    door: dict[str, Any] = {"attribution": who, "openai": body, "messages": ()}
    async with house(bus, told=told) as running:
        gateway = running.starts("one")
        known = told.pop(run_id)
        with pytest.raises(RunBudgetUnknown):
            await spends(gateway, 20, **door)
        told[run_id] = known
        await gateway.runs.of(request(**door))
        del told[run_id]
        with pytest.raises(RunBudgetUnknown):
            await spends(gateway, 20, **door)
        assert await spends(gateway, 20), "it names no run of ours"
        told[run_id] = known
        monkeypatch.setattr(spent_before, "METERED_MS", -1.0)
        assert await spends(gateway, 20, **door)
        del told[run_id]
        assert await spends(gateway, 20, **door), "the gateway knows now"


async def test_calls_that_name_a_run_which_is_not_stored_yet_wait_for_its_budget(bus: Bus) -> None:
    run_id = "r" + 24 * "b"
    told = {run_id: SpentTold(spent_usd=Decimal(0), run_known=True, budget_usd=Decimal("0.05"))}
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    door: dict[str, Any] = {
        "attribution": Attribution(tenant="acme", run_id=run_id),
        "openai": body,
        "messages": (),
    }
    async with house(bus, told=told, knows_after=3) as running:
        gateway = running.starts("one")
        costs = await asyncio.gather(*(spends(gateway, MOST_TOKENS, **door) for _ in range(20)))
    assert 0 < sum(costs) <= Decimal("0.05") + Decimal(MOST_TOKENS) / 1_000


async def test_a_run_that_nobody_knows_has_no_budget(bus: Bus) -> None:
    who = Attribution(tenant="acme", run_id="r" + 24 * "c")
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    async with house(bus, knows_after=1_000) as running:
        gateway = running.starts("one")
        assert await spends(gateway, 20, attribution=who, openai=body, messages=())


WHAT_NO_GATEWAY_WROTE = pytest.mark.parametrize(
    "written",
    [
        b"0 \n{}",
        b'0 \n{"gone":"0","lines":{}}',
        b"\xff\xff",
        b'0 0123\n{"gone":"-5","lines":{"x":["0","0"]}}',
    ],
)


@WHAT_NO_GATEWAY_WROTE
async def test_what_no_gateway_wrote_over_a_claim_is_written_over_at_the_end(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, written: bytes
) -> None:
    monkeypatch.setattr(account_sync, "FLUSH_S", BOUND_S)  # nothing is given back before the end
    async with house(bus, seals=Capabilities([b"k" * 32])) as running:
        gateway = running.starts("one")
        assert await spends(gateway, 20, budget_usd="0.05")
        await _overwrites_claims(bus, written)
        assert await spends(gateway, 20, budget_usd="0.05")  # which is written later
        assert not await spends(gateway, 20, budget_usd="0.05")
        await running.stops("one")
        other = running.starts("two")
        assert not await spends(other, 20, budget_usd="0.05")


@WHAT_NO_GATEWAY_WROTE
async def test_where_no_gateway_wrote_the_claims_the_ledger_says_what_was_spent(
    bus: Bus, written: bytes
) -> None:
    told = {"r1": SpentTold(spent_usd=Decimal("0.04"))}
    async with house(bus, seals=Capabilities([b"k" * 32])) as running:
        gateway = running.starts("one")
        for _ in range(2):
            assert await spends(gateway, 20, budget_usd="0.05")
        await running.stops("one")
        await _overwrites_claims(bus, written)
        running.told = told
        other = running.starts("two")
        assert not await spends(other, 20, budget_usd="0.05")


@WHAT_NO_GATEWAY_WROTE
async def test_a_gateway_knows_what_it_spent_though_another_began_anew_over_foreign_bytes(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, written: bytes
) -> None:
    flush_s = account_sync.FLUSH_S
    monkeypatch.setattr(account_sync, "FLUSH_S", BOUND_S)  # nobody writes before the other begins
    async with house(bus, seals=Capabilities([b"k" * 32])) as running:
        one = running.starts("one")
        for _ in range(3):
            assert await spends(one, 20, budget_usd="0.1")
        await _overwrites_claims(bus, written)
        monkeypatch.setattr(account_sync, "FLUSH_S", flush_s)
        two = running.starts("two")  # no ledger says what was spent
        assert await spends(two, 20, budget_usd="0.1")
        assert await spends(one, 20, budget_usd="0.1")
        assert not await spends(one, 20, budget_usd="0.1")
        assert not await spends(two, 20, budget_usd="0.1")


async def _overwrites_claims(bus: Bus, written: bytes) -> None:
    name = f"KV_{subjects.BUDGETS}"
    async with asyncio.timeout(BOUND_S):
        info = await bus.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"}, timeout_ms=5_000)
        for key in [key for key in info["state"]["subjects"] if ".claims." in key]:
            await bus.publish(key, written)


def held_put(begun: asyncio.Event, goes_on: asyncio.Event) -> Callable[..., Awaitable[int]]:
    """Return a `BudgetStore.put` that tells when it begins, and goes on when it may."""
    put = BudgetStore.put

    async def held(self: BudgetStore, key: str, *rest: Any) -> int:
        begun.set()
        await goes_on.wait()
        await asyncio.sleep(0.01)
        return await put(self, key, *rest)

    return held


async def test_what_a_call_did_not_spend_is_given_back_at_the_end_though_a_write_is_going_on(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async with house(bus) as running:
        gateway = running.starts("one")
        reserve = partial(gateway.reserve, request(budget_usd="0.05"), KIND, [PRICES])
        held, more = await reserve(Cancellation()), await reserve(Cancellation())
        monkeypatch.setattr(BudgetStore, "put", held_put(begun, goes_on))
        gateway.settle(held, Decimal("0.001"))
        async with asyncio.timeout(BOUND_S):
            await begun.wait()
        gateway.settle(more, Decimal("0.001"))
        stops = asyncio.create_task(running.stops("one"))
        for _ in range(100):
            await asyncio.sleep(0)
        goes_on.set()
        await stops
        assert await spends(running.starts("two"), 20, budget_usd="0.03")


async def test_what_a_call_did_not_spend_is_given_back_at_the_end_though_a_write_fails(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, failed = BudgetStore.put, []

    async def fails_once(self: BudgetStore, key: str, *rest: Any) -> int:
        if not failed:
            failed.append(key)
            raise BusUnavailable(reason="it does not answer in time")
        return await put(self, key, *rest)

    async with house(bus) as running:
        gateway = running.starts("one")
        held = await gateway.reserve(request(budget_usd="0.03"), KIND, [PRICES], Cancellation())
        monkeypatch.setattr(account_sync, "FLUSH_S", BOUND_S)
        monkeypatch.setattr(BudgetStore, "put", fails_once)
        gateway.settle(held, Decimal("0.001"))
        await running.stops("one")
        assert failed
        assert await spends(running.starts("two"), 20, budget_usd="0.03")


async def test_a_bucket_that_is_removed_is_made_again_and_nothing_is_forgotten(bus: Bus) -> None:
    async with house(bus) as running:
        gateway = running.starts("one")
        for _ in range(2):
            assert await spends(gateway, 20, budget_usd="0.05")
        await bus.js.delete_stream(f"KV_{subjects.BUDGETS}")
        assert not await spends(gateway, 20, budget_usd="0.05")
        assert await spends(gateway, 5, budget_usd="0.07")


async def test_where_the_bucket_has_no_room_a_gateway_keeps_its_account_to_itself(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_store, "MAX_KEYS", 1)
    monkeypatch.setattr(budget_store, "TIMEOUT_MS", 200.0)
    async with house(bus) as running:
        gateway = running.starts("one")
        await bus.publish(f"$KV.{subjects.BUDGETS}.claims.other", b"0 ")
        assert await spends(gateway, 20, budget_usd="0.05")
        assert await spends(gateway, 20, budget_usd="0.05")
        assert not await spends(gateway, 20, budget_usd="0.05")


@pytest.fixture
def without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that another key fills."""
    monkeypatch.setattr(budget_store, "MAX_KEYS", 1)
    monkeypatch.setattr(budget_store, "TIMEOUT_MS", 200.0)
    monkeypatch.setattr(spent_before, "METERED_MS", 0.0)


@pytest.mark.usefixtures("without_room")
async def test_where_the_bucket_has_no_room_what_tools_charge_counts_at_once(bus: Bus) -> None:
    rules = BudgetRules(tenants={"acme": Allowance(Decimal("0.1"), "month")})
    charged = {"acme": SpentTold(spent_usd=Decimal(0), tools_usd=Decimal("0.03"))}
    async with house(bus, rules=rules, told=charged) as running:
        gateway = running.starts("one")
        await bus.publish(f"$KV.{subjects.BUDGETS}.claims.other", b"0 ")
        assert await spends(gateway, 20)
        charged["acme"] = SpentTold(spent_usd=Decimal(0), tools_usd=Decimal("0.06"))
        assert await spends(gateway, 20), "0.02 + 0.06 are spent"
        assert not await spends(gateway, 20), "0.04 + 0.06 are spent"


@pytest.mark.usefixtures("without_room")
async def test_where_the_bucket_has_no_room_what_tools_charge_to_a_run_counts_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spent_before, "RUN_METERED_MS", -1.0)
    monkeypatch.setattr(spent_before, "PAUSE_FACTOR", 0)
    run_id, budget_usd = "r" + 24 * "e", Decimal("0.129")

    def knows(calls: str, tools: str) -> SpentTold:
        of_run = {"spent_usd": calls, "tools_usd": tools, "budget_usd": budget_usd}
        return SpentTold.model_validate({"run_known": True, **of_run})

    told = {run_id: knows("0", "0")}
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    who = Attribution(tenant="acme", run_id=run_id)
    door: dict[str, Any] = {"attribution": who, "openai": body, "messages": ()}
    async with house(bus, told=told) as running:
        gateway = running.starts("one")
        await bus.publish(f"$KV.{subjects.BUDGETS}.claims.other", b"0 ")
        assert await spends(gateway, 20, **door)
        told[run_id] = knows("0.02", "0.03")
        assert await spends(gateway, 20, **door), "0.02 + 0.03 are spent"
        told[run_id] = knows("0.02", "0.05")
        assert await spends(gateway, 20, **door), "0.04 + 0.05 are spent"
        assert not await spends(gateway, 20, **door), "0.06 + 0.05 are spent"


@pytest.mark.usefixtures("without_room")
@pytest.mark.parametrize("told", ["by its coordinator", "by the ledger"])
async def test_where_the_bucket_still_has_no_room_nothing_is_counted_twice(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setattr(account_sync, "ALONE_MS", 0.0)
    known: dict[str, SpentTold] = {}
    async with house(bus, told=known) as running:
        gateway = running.starts("one")
        await bus.publish(f"$KV.{subjects.BUDGETS}.claims.other", b"0 ")
        spent_usd = Decimal(0)
        for _ in range(5):
            given: dict[str, Any] = {"budget_usd": "0.1"}
            if told == "by the ledger":
                known["r1"] = SpentTold(spent_usd=spent_usd)
                body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
                given |= {"openai": body, "messages": ()}
            else:
                given["budget_left_usd"] = str(Decimal("0.1") - spent_usd)
            cost_usd = await spends(gateway, 20, **given)
            assert cost_usd, f"{spent_usd} are spent"
            spent_usd += cost_usd
        assert not await spends(gateway, 20, budget_usd="0.1")


@pytest.mark.usefixtures("without_room")
@pytest.mark.parametrize("alone_ms", [0.0, 60_000.0], ids=["sharing tried again", "meanwhile"])
async def test_where_the_bucket_has_no_room_what_other_gateways_spent_counts(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, alone_ms: float
) -> None:
    monkeypatch.setattr(account_sync, "ALONE_MS", alone_ms)
    rules = BudgetRules(tenants={"acme": Allowance(Decimal("0.1"), "month")})
    booked = {"acme": SpentTold(spent_usd=Decimal(0))}
    async with house(bus, rules=rules, told=booked) as running:
        gateways = [running.starts(name) for name in ("one", "two", "three")]
        await bus.publish(f"$KV.{subjects.BUDGETS}.claims.other", b"0 ")
        spent_usd = Decimal(0)
        for number in range(9):
            spent_usd += await spends(gateways[number % 3], 20)
            booked["acme"] = SpentTold(spent_usd=spent_usd)
    assert spent_usd == Decimal("0.1")


# ---- who may fill the bucket ------------------------------------------------------------------


async def keys(bus: Bus) -> list[str]:
    """Return the kinds of the keys in the bucket."""
    name = f"KV_{subjects.BUDGETS}"
    info = await bus.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"}, timeout_ms=5_000)
    return sorted(key.split(".")[2] for key in info["state"].get("subjects") or ())


async def test_calls_that_are_refused_or_have_no_run_leave_no_account_in_the_bucket(
    bus: Bus,
) -> None:
    body = {"path": "chat/completions", "body": {"max_tokens": MOST_TOKENS}}
    door: dict[str, Any] = {"openai": body, "messages": ()}
    async with house(bus) as running:
        gateway = running.starts("one")
        for number in range(20):
            names = {"call_id": f"http:{number}"}
            nobody, somebody = (
                Attribution(tenant="acme", run_id=run_id) for run_id in (None, f"r{number}")
            )
            assert not await spends(gateway, 1, attribution=nobody, budget_usd="0", **names, **door)
            assert await spends(gateway, 1, attribution=nobody, budget_usd="1", **names, **door)
            assert not await spends(gateway, 1, attribution=somebody, budget_usd="0", **door)
        await running.stops("one")
        assert "claims" not in await keys(bus)


@pytest.fixture
def leaves_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that an account leaves soon if nothing was spent from it."""
    monkeypatch.setattr(account_sync, "EMPTY_KEPT_S", 1.0)


async def _is_empty(bus: Bus) -> None:
    async with asyncio.timeout(BOUND_S):
        while await keys(bus):  # noqa: ASYNC110 - a bucket tells nobody
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("leaves_soon")
async def test_what_is_claimed_of_an_account_that_left_the_bucket_and_came_again_counts(
    bus: Bus,
) -> None:
    budget = {"budget_usd": "0.03"}
    async with house(bus) as running:
        first, second = running.starts("first"), running.starts("second")
        for gateway in (first, second):
            held = await gateway.reserve(request(**budget), KIND, [PRICES], Cancellation())
            gateway.settle(held, Decimal(0))
            await _gives_back(held)
        await _is_empty(bus)
        held = await second.reserve(request(**budget), KIND, [PRICES], Cancellation())
        waits = asyncio.create_task(spends(first, MOST_TOKENS, **budget))
        async with asyncio.timeout(BOUND_S):
            while not first.waiting:  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0)
        second.settle(held, Decimal("0.015"))
        assert not await asyncio.wait_for(waits, BOUND_S), "0.015 of 0.03 are left"


@pytest.mark.usefixtures("leaves_soon")
async def test_what_was_claimed_of_an_account_that_left_the_bucket_is_claimed_no_more(
    bus: Bus,
) -> None:
    async with house(bus) as running:
        first, second = running.starts("first"), running.starts("second")
        ask = partial(request, budget_usd="0.05")
        held = await second.reserve(ask(), KIND, [PRICES], Cancellation())
        seen = await first.reserve(ask(), KIND, [PRICES], Cancellation())
        first.settle(seen, Decimal(0))
        await _gives_back(seen)  # and knows what the second claims
        second.settle(held, Decimal(0))
        await _is_empty(bus)
        deadline_at_ms = clock.now_ms() + 10_000
        assert await spends(first, 20, budget_usd="0.03", deadline_at_ms=deadline_at_ms)


async def test_a_call_that_stops_waiting_gives_back_what_was_claimed_for_it(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async with house(bus) as running:
        first, second = running.starts("first"), running.starts("second")
        budget = {"budget_usd": "0.021"}
        held = await first.reserve(request(**budget), KIND, [PRICES], Cancellation())
        first.settle(held, Decimal(0))
        await _gives_back(held)
        monkeypatch.setattr(BudgetStore, "put", held_put(begun, goes_on))
        stops = asyncio.create_task(spends(first, 20, **budget))
        async with asyncio.timeout(BOUND_S):
            await begun.wait()
        stops.cancel()
        await asyncio.wait({stops})
        goes_on.set()
        deadline_at_ms = clock.now_ms() + 10_000
        assert await spends(second, 20, deadline_at_ms=deadline_at_ms, **budget)


async def _gives_back(held: Reservation | None) -> None:
    """Wait until a gateway claims nothing of the one account of a reservation that it has settled."""
    assert held is not None
    (account,) = held.accounts
    async with asyncio.timeout(BOUND_S):
        while account.claim_usd:  # noqa: ASYNC110 - a bucket tells nobody
            await asyncio.sleep(0.01)


async def test_runs_and_histories_leave_room_for_the_accounts_of_tenants(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_store, "COUNTED_S", -1.0)
    monkeypatch.setattr(account_sync, "RUN_KEYS", 8)
    monkeypatch.setattr(cost_history, "HISTORY_KEYS", 4)
    rules = BudgetRules(tenants={"acme": Allowance(Decimal("0.028"), "month")})
    async with house(bus, rules=rules) as running:
        first, second = running.starts("first"), running.starts("second")
        for number in range(12):
            first.learn(request(), ("writer", "p", f"n{number}"), PRICES, Decimal("0.01"))
        async with asyncio.timeout(BOUND_S):
            while len(await keys(bus)) < 4:  # noqa: ASYNC110 - a bucket tells nobody
                await asyncio.sleep(0.05)
        for number in range(12):
            who = Attribution(tenant="other", run_id=f"r{number}")
            assert await spends(first, 20, attribution=who, budget_usd="1")
        assert await spends(first, 20)
        assert not await spends(second, 20), "what the first spent is shared"
        await running.stops("first")
        assert await keys(bus) == ["claims"] * 5 + ["ratios"] * 4


async def test_histories_of_one_tenant_take_a_bounded_number_of_keys_and_are_kept(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_history, "PLACES", 4)
    kinds = [("writer", "p", f"n{number}") for number in range(30)]
    async with house(bus) as running:
        gateway = running.starts("one")
        for kind in kinds:
            gateway.learn(request(), kind, PRICES, Decimal("0.01"))
        await running.stops("one")
        assert await keys(bus) == ["ratios"] * (4 + 1), "and that of the model"
        gateway = running.starts("two")
        for kind in kinds:
            await gateway.reserve(request(budget_usd="9"), kind, [PRICES], Cancellation())
        known = [gateway._estimator.count(cost_kind(request(), kind)) for kind in kinds]
        assert sum(known) == 4


async def test_a_gateway_that_starts_knows_of_calls_that_exceeded_their_worst_cases(
    bus: Bus,
) -> None:
    """So one call that keeps to its own does not make it expect that the others do."""
    rules = BudgetRules(tenants={"acme": Allowance(Decimal(2), "day")})
    async with house(bus, rules=rules) as running:
        earlier = running.starts("earlier")
        for _ in range(30):
            earlier.learn(request(), KIND, PRICES, Decimal("0.4"))
        await running.stops("earlier")
        gateway = running.starts("started")
        assert await spends(gateway, MOST_TOKENS)
        deadline_at_ms = clock.now_ms() + 1_000
        async with asyncio.timeout(BOUND_S):
            reserved = await asyncio.gather(
                *(_reserves(gateway, deadline_at_ms) for _ in range(12))
            )
    assert 1 <= sum(reserved) <= 5


async def _reserves(gateway: Spending, deadline_at_ms: float) -> bool:
    """Tell whether a call that goes on gets its money before its deadline."""
    call = request(deadline_at_ms=deadline_at_ms)
    try:
        return await gateway.reserve(call, KIND, [PRICES], Cancellation()) is not None
    except BudgetExceeded:
        return False


async def test_a_history_that_a_former_release_kept_is_known(bus: Bus) -> None:
    kind = cost_kind(request(), KIND)
    async with house(bus) as running:
        store = BudgetStore(bus)
        key = CostHistory(store, Estimator())._key(kind)
        kept = json.dumps({"kind": kind, "ratios": [1.5, 2]}).encode()
        await store.put(key, kept, 0, 60.0, 10)
        gateway = running.starts("one")
        await gateway.reserve(request(budget_usd="9"), KIND, [PRICES], Cancellation())
        assert gateway._estimator.kept(kind) == {"ratios": [1.5, 2.0], "excess": []}


async def test_a_strict_budget_holds_over_gateways_that_know_nothing(bus: Bus) -> None:
    async with house(bus, rules=BudgetRules(reserve="worst")) as running:
        gateways = [running.starts(name) for name in "abcd"]
        async with asyncio.timeout(BOUND_S):
            costs = await asyncio.gather(
                *(
                    spends(gateways[number % 4], 1 + number % MOST_TOKENS, budget_usd="1")
                    for number in range(400)
                )
            )
    assert Decimal("0.95") <= sum(costs) <= 1
