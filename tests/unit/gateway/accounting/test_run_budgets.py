"""What is known of a run applies to calls that only name it."""

import asyncio
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.accounting import run_budgets, spent_before
from hocket.gateway.accounting.run_budgets import (
    PAUSE_MS,
    WAITS_SHARE,
    RunBudgets,
    RunBudgetUnknown,
)
from hocket.gateway.accounting.spending import Spending
from hocket.gateway.accounting.spent_before import SpentBefore
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.budget_rules import read
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.errors import CallStopped
from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import (
    Attribution,
    CallRequest,
    OpenAIBody,
    RootBudget,
    SpentAsked,
    SpentTold,
)
from support.gateway.routing_rig import NOW_MS, request

RUN = "r" + 24 * "a"
RULES = read({"pipelines": {"report": {"usd": 1}}}, {})
KIND = ("writer", "", "")
BOUND_S = 30.0


class Ledger:
    """Knows one run."""

    async def ask_patiently(self, asked: SpentAsked) -> SpentTold:
        is_known = (asked.tenant, asked.run_id) == ("acme", RUN)
        return SpentTold(
            spent_usd=Decimal(0), run_known=is_known, pipeline="report" if is_known else None
        )


def named(**who: Any) -> CallRequest:
    body = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 10}
    attribution = Attribution(tenant="acme", run_id=RUN, **who)
    openai = OpenAIBody(path="chat/completions", body=body)
    call = request("http:1", attribution=attribution, messages=(), openai=openai)
    return call.model_copy(update={"deadline_at_ms": NOW_MS + 3_600_000})


async def test_a_call_that_names_a_run_spends_from_the_budget_of_the_runs_pipeline() -> None:
    spending = Spending(RULES, lambda: NOW_MS)
    spending.runs._ledger = Ledger()  # type: ignore[assignment]
    prices = [Prices(output_usd_per_mtok=Decimal(1))]
    for call, names in ((named(), ["acme/report"]), (named(pipeline="other"), ["acme/report"])):
        reserved = await spending.reserve(call, KIND, prices, Cancellation())
        accounts = () if reserved is None else reserved.accounts
        assert [account.budget.name for account in accounts] == names
    await spending.close(1)


async def test_no_number_of_runs_of_one_tenant_lifts_the_budget_of_anothers_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call with a budget of nothing is refused, and costs nothing."""
    monkeypatch.setattr(run_budgets, "MAX_RUNS", 100)
    budgets = RunBudgets(None, lambda: NOW_MS)

    async def named_budget(tenant: str, run_id: str, usd: str | None) -> Decimal | None:
        who = Attribution(tenant=tenant, run_id=run_id)
        openai = OpenAIBody(path="chat/completions", body={})
        usd_left = None if usd is None else Decimal(usd)
        call = request("http:1", attribution=who, openai=openai, budget_usd=usd_left)
        return await budgets.of(call)

    assert await named_budget("acme", "session", "0.10") == Decimal("0.10")
    for number in range(500):
        await named_budget("globex", f"session-{number}", "0")
    assert await named_budget("acme", "session", None) == Decimal("0.10")


class Ledgers(SpentBefore):
    """Ledgers that know one run, and may be away."""

    def __init__(self, away: int = 0) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.away = away
        """How many questions get no answer."""
        self.asked: Counter[str] = Counter()

    async def ask(
        self, asked: SpentAsked, waits_ms: float = 0.0, *, is_long: bool = False
    ) -> SpentTold | None:
        self.asked[asked.run_id or ""] += 1
        if self.asked.total() <= self.away:
            return None
        is_known = asked.run_id == RUN
        budget_usd = Decimal("0.30") if is_known else None
        return SpentTold(spent_usd=Decimal(0), run_known=is_known, budget_usd=budget_usd)


@pytest.fixture
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spent_before, "RETRY_S", 0.001)
    monkeypatch.setattr(spent_before, "PATIENCE_S", 0.05)
    monkeypatch.setattr(run_budgets, "PAUSES_S", (0.001,) * 6)


@pytest.mark.usefixtures("in_no_time")
async def test_while_no_ledger_answers_a_call_that_names_a_run_is_not_made_without_its_budget() -> (
    None
):
    budgets = RunBudgets(Ledgers(away=1_000_000), lambda: NOW_MS)
    for ask in (budgets.of, budgets.as_stored):
        with pytest.raises(RunBudgetUnknown) as refused:
            await ask(named())
        error = refused.value.info()
        assert (error.error_class, error.retryable) == (ErrorClass.UNAVAILABLE, True)
    assert RUN in error.message
    nobody = named().model_copy(update={"attribution": Attribution(tenant="acme")})
    agents = named().model_copy(update={"attribution": Attribution(tenant="acme", run_id="mine")})
    for call in (nobody, agents):
        assert await budgets.of(call) is None
    await budgets.close()


@pytest.mark.usefixtures("in_no_time")
async def test_a_ledger_that_answers_late_is_waited_for_and_needed_no_more_afterwards() -> None:
    ledgers = Ledgers(away=3)
    budgets = RunBudgets(ledgers, lambda: NOW_MS)
    calls = [budgets.of(named()) for _ in range(20)]
    assert await asyncio.gather(*calls) == [Decimal("0.30")] * 20
    ledgers.away = 1_000_000
    assert await budgets.of(named()) == Decimal("0.30")
    assert ledgers.asked.total() == 4


async def test_a_call_waits_for_a_ledger_no_longer_than_its_deadline_or_its_caller() -> None:
    budgets = RunBudgets(Ledgers(away=1_000_000), lambda: NOW_MS)
    soon = named().model_copy(update={"deadline_at_ms": NOW_MS + 20})
    async with asyncio.timeout(5):
        with pytest.raises(RunBudgetUnknown):
            await budgets.of(soon)
        cancellation = Cancellation()
        waits = asyncio.create_task(budgets.of(named(), cancellation))
        await asyncio.sleep(0.01)
        cancellation.cancel("the caller has gone")
        with pytest.raises(CallStopped) as stopped:
            await waits
    assert not isinstance(stopped.value, RunBudgetUnknown)
    await budgets.close()


@pytest.mark.usefixtures("in_no_time")
async def test_a_flood_of_unknown_runs_is_asked_about_twice_each_and_a_single_one_seven_times() -> (
    None
):
    ledgers = Ledgers()
    budgets = RunBudgets(ledgers, lambda: NOW_MS)

    def names(tenant: str, number: int) -> CallRequest:
        who = Attribution(tenant=tenant, run_id=f"r{number:024x}")
        return named().model_copy(update={"attribution": who})

    flood = [budgets.of(names("flood", number)) for number in range(1, 201)]
    assert await asyncio.gather(budgets.of(names("acme", 0)), *flood) == [None] * 201
    assert ledgers.asked.pop(f"r{0:024x}") == 7
    assert Counter(ledgers.asked.values()) == {
        7: run_budgets.MAX_PATIENT,
        2: 200 - run_budgets.MAX_PATIENT,
    }
    assert not budgets._patient


class Reused:
    """A ledger that knows a run whose id another run has afterwards."""

    def __init__(self) -> None:
        self.told: SpentTold | None = self.run("initech", accepted_at_ms=1.0)
        self.then: list[SpentTold] = []
        """What it tells before that."""
        self.asked = 0

    @staticmethod
    def run(customer: str, accepted_at_ms: float | None) -> SpentTold:
        return SpentTold(
            spent_usd=Decimal(0),
            run_known=True,
            pipeline=f"of-{customer}",
            budget_usd=Decimal(len(customer)),
            labels={"customer": customer},
            accepted_at_ms=accepted_at_ms,
        )

    async def ask(self, asked: SpentAsked) -> SpentTold | None:
        self.asked += 1
        return self.then.pop(0) if self.then else self.told

    ask_patiently = ask


@pytest.mark.usefixtures("in_no_time")
async def test_what_is_known_of_a_run_is_replaced_when_another_one_has_its_id() -> None:
    ledger, now_ms = Reused(), [NOW_MS]
    replaced: list[tuple[str, str]] = []
    budgets = RunBudgets(
        ledger,  # type: ignore[arg-type]
        lambda: now_ms[0],
        lambda tenant, run_id: replaced.append((tenant, run_id)),
    )

    async def known(call: CallRequest) -> tuple[Any, ...]:
        await budgets.of(call)
        return budgets.known(named()), budgets.labels_of(call), budgets.pipeline_of(call)

    former = (Decimal(7), {"customer": "initech"}, "of-initech")
    for _ in range(3):
        assert await known(named()) == former
        now_ms[0] += PAUSE_MS  # not longer
    assert ledger.asked == 1
    for told in (ledger.told, None, Reused.run("initech", accepted_at_ms=None)):
        now_ms[0] += 2 * PAUSE_MS
        ledger.told = told
        assert await known(named()) == former
        assert not replaced
    now_ms[0] += 2 * PAUSE_MS
    ledger.told = Reused.run("acme", accepted_at_ms=2.0)
    assert await known(named()) == (Decimal(4), {"customer": "acme"}, "of-acme")
    assert replaced == [("acme", RUN)]


@pytest.mark.usefixtures("in_no_time")
async def test_of_a_run_that_the_ledger_has_no_longer_only_the_budgets_are_remembered() -> None:
    """Its calls may go on: retention deletes runs, and a restored Postgres lacks some. A run that has
    its id then is stored a moment after its first call."""
    ledger, now_ms = Reused(), [NOW_MS]
    replaced: list[tuple[str, str]] = []
    budgets = RunBudgets(
        ledger,  # type: ignore[arg-type]
        lambda: now_ms[0],
        lambda tenant, run_id: replaced.append((tenant, run_id)),
    )
    top = RootBudget(run_id="top", budget_usd=Decimal(5))
    ledger.told = ledger.told and ledger.told.model_copy(update={"root_budget": top})
    former = ledger.told
    await budgets.of(named())
    ledger.told = SpentTold(spent_usd=Decimal(0))
    for _ in range(3):
        now_ms[0] += 2 * PAUSE_MS
        assert await budgets.of(named()) == Decimal(7)
        assert (budgets.pipeline_of(named()), budgets.labels_of(named())) == (None, {})
        assert budgets.root_of(named()) == top
    guests = await budgets.as_stored(workers())
    assert (guests.budget_usd, guests.root_budget) == (Decimal(3), top)
    assert guests.attribution == workers().attribution
    now_ms[0] += 2 * PAUSE_MS
    ledger.told = former
    assert await budgets.of(named()) == Decimal(7)
    assert budgets.pipeline_of(named()) == "of-initech"
    assert not replaced
    now_ms[0] += 2 * PAUSE_MS
    ledger.then = [SpentTold(spent_usd=Decimal(0))] * 2
    ledger.told = Reused.run("acme", accepted_at_ms=2.0)
    assert await budgets.of(named()) == Decimal(4)
    assert budgets.pipeline_of(named()) == "of-acme"
    assert budgets.root_of(named()) is None
    assert replaced == [("acme", RUN)]


@pytest.mark.usefixtures("in_no_time")
async def test_a_ledger_that_is_away_is_not_asked_for_each_call_of_a_known_run() -> None:
    ledger, now_ms = Reused(), [NOW_MS]
    budgets = RunBudgets(ledger, lambda: now_ms[0])  # type: ignore[arg-type]
    await budgets.of(named())
    ledger.told = None
    now_ms[0] += 2 * PAUSE_MS
    for _ in range(5):
        assert await budgets.of(named()) == Decimal(7)
    assert ledger.asked == 2


def workers() -> CallRequest:
    return named().model_copy(update={"openai": None, "budget_usd": Decimal(3)})


def of_a_run(pipeline: str | None, **labels: str) -> CallRequest:
    """A call of a worker."""
    who = Attribution(tenant="acme", run_id=RUN, pipeline=pipeline, labels=labels or None)
    return workers().model_copy(update={"attribution": who, "budget_usd": None})


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (of_a_run("of-acme", customer="acme"), ["of-acme", "customer=acme"]),
        (of_a_run("of-acme"), ["of-acme"]),
        (of_a_run("of-initech", customer="acme"), ["top", "of-initech", "customer=acme"]),
        (of_a_run("of-initech"), ["top", "of-initech", "customer=initech"]),
        (of_a_run(None), ["top", "of-initech", "customer=initech"]),
    ],
    ids=["another run", "without labels", "labels", "what is known", "carries nothing"],
)
async def test_what_a_workers_call_carries_comes_before_what_is_known_of_a_run_with_its_id(
    call: CallRequest, names: list[str]
) -> None:
    """What it does not carry is that of the known run, if that has the same pipeline."""
    rules = read({"pipelines": {"*": {"usd": 1}}, "labels": {"customer=*": {"usd": 1}}}, {})
    ledger, spending = Reused(), Spending(rules, lambda: NOW_MS)
    assert ledger.told is not None
    top = RootBudget(run_id="top", budget_usd=Decimal(5))
    ledger.told = ledger.told.model_copy(update={"root_budget": top})
    spending.runs._ledger = ledger  # type: ignore[assignment]
    await spending.runs.of(named())
    prices = [Prices(output_usd_per_mtok=Decimal(1))]
    reserved = await spending.reserve(call, KIND, prices, Cancellation())
    assert reserved is not None
    found = [account.budget.name for account in reserved.accounts]
    assert found == [f"acme/{name}" for name in names]
    assert ledger.asked == 1
    await spending.close(1)


async def test_what_is_left_of_a_budget_is_told_by_the_budget_that_a_workers_call_carries() -> None:
    budgets = RunBudgets(Reused(), lambda: NOW_MS)  # type: ignore[arg-type]
    await budgets.of(named())
    assert budgets.known(of_a_run("of-acme")) is None
    assert budgets.known(workers()) == Decimal(3)


class Broken(Reused):
    """A ledger whose questions fail in an unforeseen way, once it is `broken`."""

    broken = False

    async def ask(self, asked: SpentAsked) -> SpentTold | None:
        told = await super().ask(asked)
        if self.broken:
            raise RuntimeError("odd")
        return told

    ask_patiently = ask


async def test_a_question_that_fails_in_an_unforeseen_way_is_not_repeated_by_each_call() -> None:
    ledger, now_ms = Broken(), [NOW_MS]
    budgets = RunBudgets(ledger, lambda: now_ms[0])  # type: ignore[arg-type]
    await budgets.of(named())
    ledger.broken = True
    now_ms[0] += 2 * PAUSE_MS
    for _ in range(5):
        assert await budgets.of(named()) == Decimal(7)
        assert (await budgets.as_stored(workers())).attribution.pipeline == "of-initech"
    assert ledger.asked == 2


async def test_a_question_about_an_unknown_run_that_fails_so_refuses_the_call() -> None:
    ledger = Broken()
    ledger.broken = True
    budgets = RunBudgets(ledger, lambda: NOW_MS)  # type: ignore[arg-type]
    with pytest.raises(RunBudgetUnknown):
        await budgets.of(named())


async def test_nothing_is_asked_after_the_end() -> None:
    ledger, now_ms = Reused(), [NOW_MS]
    budgets = RunBudgets(ledger, lambda: now_ms[0])  # type: ignore[arg-type]
    await budgets.of(named())
    await budgets.close()
    now_ms[0] += 2 * PAUSE_MS
    assert await budgets.of(named()) == Decimal(7)
    other = Attribution(tenant="acme", run_id="r" + 24 * "b")
    with pytest.raises(RunBudgetUnknown):
        await budgets.of(named().model_copy(update={"attribution": other}))
    assert (ledger.asked, budgets._asking) == (1, {})


class Silent(Reused):
    """A ledger that answers when it may, once it is `silent`."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self.may_answer = asyncio.Event()

    async def ask(self, asked: SpentAsked) -> SpentTold | None:
        if self.silent:
            await self.may_answer.wait()
        return await super().ask(asked)

    async def ask_patiently(self, asked: SpentAsked) -> SpentTold | None:
        assert not self.silent, "it knows the run"
        return await self.ask(asked)


async def silent_about_a_known_run(now_ms: list[float]) -> tuple[Silent, RunBudgets]:
    ledger = Silent()
    budgets = RunBudgets(ledger, lambda: now_ms[0])  # type: ignore[arg-type]
    await budgets.of(named())
    now_ms[0] += 2 * PAUSE_MS
    ledger.silent = True
    return ledger, budgets


async def test_no_call_of_a_worker_asks_the_ledger_again_about_a_run() -> None:
    ledger, budgets = await silent_about_a_known_run([NOW_MS])
    async with asyncio.timeout(BOUND_S):
        for _ in range(3):
            assert await budgets.of(workers()) == Decimal(3)
    assert not budgets._asking
    assert ledger.asked == 1


async def test_calls_of_guests_ask_after_a_pause_and_share_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_budgets, "WAITS_S", 2 * BOUND_S)
    ledger, now_ms = Silent(), [NOW_MS]
    budgets = RunBudgets(ledger, lambda: now_ms[0])  # type: ignore[arg-type]
    async with asyncio.timeout(BOUND_S):
        for _ in range(4):
            assert (await budgets.as_stored(workers())).attribution.pipeline == "of-initech"
            assert ledger.asked == 1
            now_ms[0] += 0.75 * PAUSE_MS
            ledger.silent = True
    assert not budgets._asking
    now_ms[0] += PAUSE_MS
    waits = [asyncio.create_task(budgets.as_stored(workers())) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waits)
    ledger.may_answer.set()
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*waits)
        await budgets.as_stored(workers())
    assert ledger.asked == 2


async def test_a_call_waits_for_it_a_share_of_the_time_that_it_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms = [NOW_MS]
    _, budgets = await silent_about_a_known_run(now_ms)
    loop = asyncio.get_running_loop()
    now_s = [loop.time()]
    monkeypatch.setattr(loop, "time", lambda: now_s[0])
    soon = named().model_copy(update={"deadline_at_ms": now_ms[0] + 1_000})
    waits = asyncio.create_task(budgets.of(soon))
    for share, is_done in ((0.0, False), (0.9, False), (0.2, True)):
        now_s[0] += share * WAITS_SHARE
        for _ in range(10):
            await asyncio.sleep(0)
        assert waits.done() is is_done
    assert (await waits, WAITS_SHARE) == (Decimal(7), 0.2)
    monkeypatch.undo()
    await budgets.close()


async def test_after_a_pause_only_the_calls_before_the_question_has_ended_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No ledger answers it. It is asked again a minute later, whether or not there are calls."""
    monkeypatch.setattr(run_budgets, "WAITS_S", 2 * BOUND_S)
    now_ms = [NOW_MS]
    ledger, budgets = await silent_about_a_known_run(now_ms)
    ledger.told = None
    waits = [asyncio.create_task(budgets.of(named())) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waits)
    ledger.may_answer.set()
    async with asyncio.timeout(BOUND_S):
        assert await asyncio.gather(*waits) == [Decimal(7)] * 3
        assert ledger.asked == 2
        ledger.told = Reused.run("acme", accepted_at_ms=2.0)
        for pipeline in ("of-initech",) * 3 + ("of-acme",):
            assert await budgets.of(named()) in (Decimal(7), Decimal(4))
            assert budgets.pipeline_of(named()) == pipeline
            now_ms[0] += PAUSE_MS / 3
    assert ledger.asked == 3


async def test_a_call_over_http_waits_no_longer_for_it_than_for_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_budgets, "WAITS_S", 0.001)
    _, budgets = await silent_about_a_known_run([NOW_MS])
    async with asyncio.timeout(BOUND_S):
        assert await budgets.of(named()) == Decimal(7)
    await budgets.close()


async def test_a_call_over_http_that_has_ended_waits_for_it_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_budgets, "WAITS_S", 2 * BOUND_S)
    now_ms = [NOW_MS]
    _, budgets = await silent_about_a_known_run(now_ms)
    cancellation = Cancellation()
    async with asyncio.timeout(BOUND_S):
        late = named().model_copy(update={"deadline_at_ms": now_ms[0]})
        assert await budgets.of(late) == Decimal(7)
        waits = asyncio.create_task(budgets.of(named(), cancellation))
        await asyncio.sleep(0)
        cancellation.cancel("the caller has gone")
        with pytest.raises(CallStopped):
            await waits
    await budgets.close()
