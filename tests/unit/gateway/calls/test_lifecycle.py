"""One call through the gateway: candidates, deadlines, booking, waiting, cancelling, reloading."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Literal

import pytest

from hocket.gateway.backends.endpoint_errors import EndpointErrors
from hocket.gateway.backends.http_connections import ConnectingTimedOut
from hocket.gateway.backends.protocol import (
    BackendBroken,
    BackendDenied,
    BackendError,
    BackendMisconfigured,
    BackendRateLimited,
    BackendRefused,
    BackendReplyMalformed,
    BackendReplyTooLarge,
    BackendUnreachable,
    BackendUnsuited,
    Chunk,
    Chunks,
)
from hocket.gateway.calls.attempts import upstream
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.lifecycle import Calls
from hocket.gateway.config.backend_pool import ServedBackend, retire_missing
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.budgets.budget_rules import NO_BUDGETS, BudgetRules
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.calls.request_content import PREFILL
from hocket.gateway.core.config.table import (
    BackendKind,
    BackendSpec,
    Choose,
    ModelSpec,
    PoolSpec,
    RoutingTable,
)
from hocket.gateway.core.rates import rules as rates
from hocket.gateway.core.rates.rules import NO_RATES
from hocket.gateway.core.routing.breaker import BreakerState
from hocket.gateway.core.routing.locality import PrefixCache
from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import (
    Attribution,
    CallOpened,
    CallRefused,
    CallReply,
    CallRequest,
    Completion,
    Priority,
)
from hocket.schemas.structs.usage import RecordedUsage
from support.gateway.routing_rig import Rig, backend, breaks, hangs, says
from support.gateway.routing_rig import Said as RigSaid
from support.gateway.routing_rig import request as routing_request

NOW_MS = 1_800_000_000_000.0
BOUND_S = 60.0
ANSWER = Completion(text="tidal", input_tokens=1_000_000, output_tokens=500_000)

Behaviour = Callable[[CallRequest], Awaitable[Completion]]


class ScriptedBackend:
    """A backend that does what the test says; the contract suite covers the real kinds."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.says: tuple[str, ...] = ()
        self.called = asyncio.Event()
        self.timeouts_ms: list[float] = []
        self.closed = False

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        assert not self.closed
        self.timeouts_ms.append(timeout_ms)
        self.called.set()
        if chunks is not None:
            for number, text in enumerate(self.says):
                await chunks(Chunk(text, output_tokens=number + 1))
        return await self.behaviour(request)

    async def close(self) -> None:
        self.closed = True

    def saying(self, *pieces: str) -> "ScriptedBackend":
        self.says = pieces
        return self


class Said:
    """An announcement."""

    def __init__(self, first: bool) -> None:
        self._first = first

    async def first(self) -> bool:
        return self._first


class Desk:
    """Calls over scripted backends, with a clock that stands and a book that is a list."""

    def __init__(self, **backends: ScriptedBackend) -> None:
        self.now_ms = NOW_MS
        self.records: list[RecordedUsage] = []
        self.book_open = asyncio.Event()
        self.book_open.set()
        self.backends = backends
        self.limit = 1
        self.retries: int | None = None
        self.max_waiting = 1_024
        self.prices: Prices | None = None
        self.budgets = NO_BUDGETS
        self.rates = NO_RATES
        self.kind: BackendKind = "openai"
        self.prefix_cache: PrefixCache | None = None
        self.opened: list[str] = []
        self.refused: list[CallRefused] = []
        self.calls = Calls(self.routes(), now_ms=lambda: self.now_ms, books=self)

    def routes(self) -> Routes:
        usd = itertools.count(1)
        specs = tuple(
            BackendSpec(
                name,
                self.kind,
                "a:b",
                limit=self.limit,
                pool="pool",
                prices=self.prices or Prices(Decimal(next(usd)), Decimal(1)),
                stops_on_disconnect=True,
            )
            for name in self.backends
        )
        served = {spec.name: ServedBackend(spec, self.backends[spec.name]) for spec in specs}
        if self.prefix_cache is not None:
            specs = tuple(replace(spec, prefix_cache=self.prefix_cache) for spec in specs)
        choose: Choose = "load" if self.prefix_cache is None else "locality"
        model = ModelSpec(specs, retries=self.retries, choose=choose)
        pool = PoolSpec(self.limit * len(specs), max_waiting=self.max_waiting)
        table = RoutingTable({"writer": model}, pools={"pool": pool})
        return Routes(table, served, self.budgets, rates=self.rates)

    async def make(self, call_id: str = "c", **fields: object) -> CallReply:
        return await asyncio.wait_for(
            self.calls.make(request(call_id, **fields), Cancellation()), BOUND_S
        )

    async def open(self, opened: CallOpened) -> "Said":
        first = opened.call_id not in self.opened
        self.opened.append(opened.call_id)
        return Said(first)

    def refuse(self, refused: CallRefused) -> None:
        self.refused.append(refused)

    async def book(self, record: RecordedUsage) -> None:
        await self.book_open.wait()
        self.records.append(record)

    def booked(self) -> list[tuple[str, str, str, str | None]]:
        return [(r.call_id, r.backend, r.status, r.error_code) for r in self.records]


def request(call_id: str = "c", **fields: object) -> CallRequest:
    return CallRequest.model_validate(
        {
            "call_id": call_id,
            "model": "writer",
            "deadline_at_ms": NOW_MS + 60_000,
            "attribution": Attribution(tenant="acme", run_id="r1", step="draft"),
            **fields,
        }
    )


def answers() -> ScriptedBackend:
    async def behaviour(_: CallRequest) -> Completion:
        return ANSWER

    return ScriptedBackend(behaviour)


def raises(error: Callable[[], Exception]) -> ScriptedBackend:
    async def behaviour(_: CallRequest) -> Completion:
        raise error()

    return ScriptedBackend(behaviour)


def waits(release: asyncio.Event) -> ScriptedBackend:
    async def behaviour(_: CallRequest) -> Completion:
        await release.wait()
        return ANSWER

    return ScriptedBackend(behaviour)


def broken() -> BackendBroken:
    return BackendBroken(component="a", status=503, reason="no luck")


async def test_a_call_is_booked_with_the_price_it_used() -> None:
    desk = Desk(a=answers())
    reply = await desk.make()
    (record,) = desk.records
    assert (reply.text, reply.cost_usd) == ("tidal", Decimal("1.5"))
    assert (record.cost_usd, record.input_usd_per_mtok, record.output_usd_per_mtok) == (
        Decimal("1.5"),
        Decimal(1),
        Decimal(1),
    )
    assert record.attribution == Attribution(tenant="acme", run_id="r1", step="draft")


async def test_a_failed_backend_leads_to_the_next_and_both_are_booked() -> None:
    desk = Desk(a=raises(broken), b=answers())
    reply = await desk.make()
    assert (reply.text, reply.backend) == ("tidal", "b")
    assert desk.booked() == [
        ("c", "a", "error", "backend_broken"),
        ("c:r1", "b", "ok", None),
    ]


async def test_when_every_backend_failed_the_last_error_is_the_reply() -> None:
    desk = Desk(a=raises(broken), b=raises(broken))
    reply = await desk.make()
    assert reply.error is not None
    assert (reply.error.code, reply.backend, len(desk.records)) == ("backend_broken", "b", 2)


async def test_a_refusal_is_not_tried_elsewhere() -> None:
    refused = raises(lambda: BackendRefused(component="a", status=400, reason="too long"))
    desk = Desk(a=refused, b=answers())
    reply = await desk.make()
    assert reply.error is not None
    assert desk.booked() == [("c", "a", "error", "backend_refused")]


def denied() -> BackendDenied:
    return BackendDenied(component="a", status=401, reason="key")


def misconfigured() -> BackendMisconfigured:
    return BackendMisconfigured(component="a", status=404, reason="no such model")


@pytest.mark.parametrize("error", [denied, misconfigured])
async def test_where_one_replica_is_set_up_wrongly_another_one_answers(
    error: Callable[[], BackendError],
) -> None:
    desk = Desk(a=raises(error), b=answers())
    reply = await desk.make()
    assert reply.error is None
    assert desk.booked() == [("c", "a", "error", error().code), ("c:r1", "b", "ok", None)]


@pytest.mark.parametrize("order", ["denied first", "broken first"])
async def test_a_failure_that_may_pass_is_told_rather_than_a_wrong_key(order: str) -> None:
    first, second = (denied, broken) if order == "denied first" else (broken, denied)
    desk = Desk(a=raises(first), b=raises(second))
    reply = await desk.make()
    assert reply.error is not None
    assert (reply.error.code, reply.error.retryable, len(desk.records)) == (
        "backend_broken",
        True,
        2,
    )


async def test_a_replica_that_is_set_up_wrongly_is_not_asked_again() -> None:
    desk = Desk(a=raises(denied))
    desk.retries = 3
    reply = await desk.make()
    assert reply.error is not None
    assert (reply.error.code, len(desk.records)) == ("backend_denied", 1)


async def test_no_second_backend_is_asked_after_the_deadline() -> None:
    desk = Desk(a=answers(), b=answers())

    async def fails_late(_: CallRequest) -> Completion:
        desk.now_ms += 60_000
        raise broken()

    desk.backends["a"].behaviour = fails_late
    reply = await desk.make()
    assert reply.error is not None
    assert (reply.error.code, len(desk.records)) == ("backend_broken", 1)


async def test_a_call_past_its_deadline_reaches_no_backend() -> None:
    desk = Desk(a=answers())
    reply = await desk.make(deadline_at_ms=NOW_MS)
    assert reply.error is not None
    assert (reply.error.error_class, desk.records) == (ErrorClass.TIMEOUT, [])


@pytest.mark.parametrize("drained", [True, False])
async def test_a_call_that_waits_to_its_deadline_says_for_what(drained: bool) -> None:
    hanging = hangs()
    rig = Rig({"writer": {"backends": [backend("a", max_concurrency=1)]}}, a=hanging)
    deadline_at_ms = rig.now_ms + 10
    if drained:
        rig.calls.scheduler.health.use_drained({"a": "by ops: a new disk"})
        first = None
    else:
        first = asyncio.create_task(rig.make("c-1"))
        await asyncio.wait_for(hanging.called.wait(), BOUND_S)
    reply = await rig.make("c-2", deadline_at_ms=deadline_at_ms)
    assert reply.error is not None
    assert reply.error.code == "deadline_passed"
    reason = "a is drained by ops: a new disk" if drained else "a is at its limit of 1"
    assert f"while it waited for a backend of model `writer`: {reason}." in reply.error.message
    if first is not None:
        first.cancel()


@pytest.mark.parametrize(
    ("replicas", "rest"), [(3, ""), (4, "; and 1 more"), (100, "; and 97 more")]
)
async def test_a_call_that_waited_for_many_names_the_first_of_them(
    replicas: int, rest: str
) -> None:
    names = [f"b{number}" for number in range(replicas)]
    backends = {"backends": [backend(name, max_concurrency=1) for name in names]}
    rig = Rig({"writer": backends}, **{name: hangs() for name in names})
    rig.calls.scheduler.health.use_drained(dict.fromkeys(names, "by ops"))
    reply = await rig.make("c-1", deadline_at_ms=rig.now_ms + 10)
    assert reply.error is not None
    named = "; ".join(f"{name} is drained by ops" for name in names[:3])
    assert f"of model `writer`: {named}{rest}. Give" in reply.error.message


async def test_a_backend_gets_the_time_that_is_left() -> None:
    desk = Desk(a=answers())
    await desk.make(deadline_at_ms=NOW_MS + 1_234)
    assert desk.backends["a"].timeouts_ms == [1_234]


async def test_a_deadline_that_passes_on_the_way_leaves_a_backend_a_moment_and_not_any_time() -> (
    None
):
    class Late(Desk):
        async def open(self, opened: CallOpened) -> Said:
            self.now_ms = opened.deadline_at_ms + 7
            return await super().open(opened)

    desk = Late(a=answers())
    await desk.make(deadline_at_ms=NOW_MS + 1_234)
    assert desk.backends["a"].timeouts_ms == [1.0]


async def test_a_deadline_that_passed_before_a_reply_is_read_on_is_not_told_below_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream, "READ_ON_MS", 10.0)

    class Late(Rig):
        async def open(self, opened: CallOpened) -> RigSaid:
            self.now_ms = opened.deadline_at_ms + 7
            return await super().open(opened)

    section = {"writer": {"backends": [backend("a", stops_on_disconnect=False)]}}
    reply = await Late(section, a=hangs()).make()
    assert reply.error is not None
    assert (reply.error.code, reply.error.details["timeout_ms"]) == ("backend_timed_out", 1)


async def test_an_unknown_model_is_refused_without_a_record() -> None:
    desk = Desk(a=answers())
    reply = await desk.make(model="poet")
    assert reply.error is not None
    assert (reply.error.code, desk.records) == ("model_unknown", [])
    (told,) = desk.refused
    assert (told.call_id, told.model, told.error_code) == ("c", "poet", "model_unknown")


async def test_the_record_of_an_attempt_tells_how_it_came_to_its_backend() -> None:
    desk = Desk(a=raises(broken), b=answers())
    await desk.make()
    first, second = (record.decision for record in desk.records)
    assert first is not None
    assert second is not None
    assert [one.backend for one in first.candidates] == ["a", "b"]
    assert second.tried == ("a",)
    assert [(one.backend, one.refused) for one in second.candidates] == [
        ("b", ""),
        ("a", "was tried already"),
    ]


async def test_what_a_failed_call_metered_is_booked() -> None:
    spent = Completion(input_tokens=2_000_000)
    desk = Desk(a=raises(lambda: BackendReplyMalformed(component="a", reason="torn", spent=spent)))
    await desk.make()
    assert (desk.records[0].status, desk.records[0].cost_usd) == ("error", Decimal(2))


async def test_a_reply_that_was_too_large_is_booked_within_what_its_call_allows() -> None:
    def too_large() -> Exception:
        return BackendReplyTooLarge(component="a", reason="it is", read_bytes=24_000_000)

    desk = Desk(a=raises(too_large), b=answers())
    desk.retries = 3
    error = (await desk.make(max_tokens=13_000)).error
    assert error is not None
    assert (error.code, error.retryable) == ("backend_reply_too_large", False)
    (record,) = desk.records
    assert (record.output_tokens, record.estimated) == (13_000, True)


async def test_a_request_that_is_too_large_for_a_backend_makes_it_rest_for_nobody() -> None:
    message = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 45000."
    content = json.dumps({"error": {"message": message, "code": "rate_limit_exceeded"}}).encode()

    async def limited(request: CallRequest) -> Completion:
        if request.attribution.tenant == "mallory":
            raise EndpointErrors("a", "", lambda: NOW_MS).failure(429, {}, content)
        return Completion(text="tidal")

    desk = Desk(a=ScriptedBackend(limited))
    desk.retries = 3
    for number in range(5):
        large = await desk.make(f"m{number}", attribution=Attribution(tenant="mallory"))
        assert large.error is not None
        assert (large.error.code, large.error.retryable) == ("backend_refused", False)
        assert (await desk.make(f"c{number}")).text == "tidal"
    assert len(desk.records) == 10, "it is not asked again"
    desk = Desk(a=ScriptedBackend(limited), b=says("tidal"))
    assert (await desk.make(attribution=Attribution(tenant="mallory"))).text == "tidal"


async def test_a_backend_that_asked_for_rest_is_left_alone_until_then() -> None:
    limited = raises(
        lambda: BackendRateLimited(component="a", status=429, reason="", retry_at_ms=NOW_MS + 900)
    )
    desk = Desk(a=limited, b=answers())
    await desk.make("c1")
    await desk.make("c2")
    desk.now_ms += 900
    await desk.make("c3")
    assert [r.backend for r in desk.records] == ["a", "b", "b", "a", "b"]


async def test_a_backend_rests_for_the_longest_time_that_calls_in_flight_were_told() -> None:
    rests_ms, both = [1_000, 60_000], asyncio.Event()

    async def tells(_: CallRequest) -> Completion:
        at_ms = NOW_MS + rests_ms.pop(0)
        if not rests_ms:
            both.set()
        await both.wait()
        raise BackendRateLimited(component="a", status=429, reason="x", retry_at_ms=at_ms)

    desk = Desk(a=ScriptedBackend(tells))
    desk.limit = 2
    desk.calls.replace(desk.routes())
    await asyncio.gather(desk.make("c1"), desk.make("c2"))
    assert desk.calls.scheduler.health.resting_until_ms["a"] == NOW_MS + 60_000


async def test_a_rest_that_outlasts_the_deadline_is_refused_with_its_end() -> None:
    limited = raises(
        lambda: BackendRateLimited(
            component="a", status=429, reason="", retry_at_ms=NOW_MS + 90_000
        )
    )
    desk = Desk(a=limited)
    await desk.make("c1")
    reply = await desk.make("c2")
    assert reply.error is not None
    assert (reply.error.code, reply.error.retry_at_ms) == ("backends_busy", NOW_MS + 90_000)


async def test_a_reply_waits_until_its_record_is_acknowledged() -> None:
    desk = Desk(a=answers())
    desk.book_open.clear()
    task = asyncio.create_task(desk.make())
    await asyncio.wait_for(desk.backends["a"].called.wait(), BOUND_S)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    desk.book_open.set()
    assert (await task).text == "tidal"


async def test_the_earliest_deadline_gets_the_place_that_comes_free() -> None:
    release = asyncio.Event()
    desk = Desk(a=waits(release))
    tasks = [asyncio.create_task(desk.make("first"))]
    await asyncio.wait_for(desk.backends["a"].called.wait(), BOUND_S)
    for call_id, left_ms in (("late", 50_000), ("soon", 20_000)):
        tasks.append(asyncio.create_task(desk.make(call_id, deadline_at_ms=NOW_MS + left_ms)))
    await until(lambda: len(desk.calls.scheduler.queue) == 2)
    release.set()
    await asyncio.gather(*tasks)
    assert [r.call_id for r in desk.records] == ["first", "soon", "late"]


async def test_a_cancelled_call_is_booked_as_cancelled() -> None:
    desk = Desk(a=waits(asyncio.Event()))
    cancellation = Cancellation()
    task = asyncio.create_task(desk.calls.make(request(), cancellation))
    await asyncio.wait_for(desk.backends["a"].called.wait(), BOUND_S)
    cancellation.cancel("someone asked for it")
    reply = await asyncio.wait_for(task, BOUND_S)
    assert reply.error is not None
    assert reply.error.error_class is ErrorClass.CANCELLED
    assert desk.booked() == [("c", "a", "cancelled", "call_cancelled")]


async def test_a_cancelled_waiter_leaves_its_place_to_the_next() -> None:
    release = asyncio.Event()
    desk = Desk(a=waits(release))
    first = asyncio.create_task(desk.make("first"))
    await asyncio.wait_for(desk.backends["a"].called.wait(), BOUND_S)
    cancellation = Cancellation()
    gives_up = asyncio.create_task(
        desk.calls.make(request("gives-up", deadline_at_ms=NOW_MS + 10_000), cancellation)
    )
    last = asyncio.create_task(desk.make("last"))
    await until(lambda: len(desk.calls.scheduler.queue) == 2)
    release.set()
    cancellation.cancel("someone asked for it")
    await asyncio.wait_for(asyncio.gather(first, gives_up, last), BOUND_S)
    assert [r.call_id for r in desk.records] == ["first", "last"]


async def test_a_replaced_backend_ends_its_call_and_is_closed_then() -> None:
    release = asyncio.Event()
    desk = Desk(a=waits(release))
    old = desk.backends["a"]
    task = asyncio.create_task(desk.make("c1"))
    await asyncio.wait_for(old.called.wait(), BOUND_S)
    desk.backends["a"] = answers()
    before, desk.limit = desk.calls.routes, 5
    desk.calls.replace(desk.routes())
    await retire_missing(before.served, desk.calls.routes.served)
    assert not old.closed
    await desk.make("c2")
    release.set()
    await task
    assert (old.closed, [r.call_id for r in desk.records]) == (True, ["c2", "c1"])


async def test_a_newcomer_does_not_take_the_place_of_one_who_waits() -> None:
    first, release = asyncio.Event(), asyncio.Event()
    desk = Desk(a=waits(first))
    tasks = [asyncio.create_task(desk.make("first"))]
    await asyncio.wait_for(desk.backends["a"].called.wait(), BOUND_S)
    tasks.append(asyncio.create_task(desk.make("waits", deadline_at_ms=NOW_MS + 50_000)))
    await until(lambda: len(desk.calls.scheduler.queue) == 1)
    desk.backends["a"].behaviour = waits(release).behaviour
    first.set()
    tasks.append(asyncio.create_task(desk.make("new")))
    await until(lambda: len(desk.records) == 1 and len(desk.calls.scheduler.queue) == 1)
    release.set()
    await asyncio.gather(*tasks)
    assert [r.call_id for r in desk.records] == ["first", "waits", "new"]


async def test_how_long_a_call_waited_is_told() -> None:
    release = asyncio.Event()
    desk = Desk(a=waits(release))
    first = asyncio.create_task(desk.make("first"))
    await asyncio.wait_for(desk.backends["a"].called.wait(), BOUND_S)
    second = asyncio.create_task(desk.make("second"))
    await until(lambda: len(desk.calls.scheduler.queue) == 1)
    desk.now_ms += 750
    release.set()
    replies = await asyncio.gather(first, second)
    assert [reply.queue_ms for reply in replies] == [0, 750]


async def test_a_reply_tells_what_all_its_attempts_cost() -> None:
    spent = Completion(input_tokens=1_000_000)
    torn = BackendBroken(component="a", status=503, reason="torn", spent=spent)
    desk = Desk(a=raises(lambda: torn), b=answers())
    reply = await desk.make()
    assert [record.cost_usd for record in desk.records] == [Decimal(1), Decimal("2.5")]
    assert reply.cost_usd == Decimal("3.5")


@pytest.mark.parametrize("answers_at_last", [True, False])
async def test_the_tokens_of_all_attempts_count_in_the_rates(answers_at_last: bool) -> None:
    spent = Completion(input_tokens=700, output_tokens=300)
    torn = BackendBroken(component="a", status=503, reason="torn", spent=spent)
    desk = Desk(a=raises(lambda: torn), b=answers() if answers_at_last else raises(lambda: torn))
    desk.rates = rates.read([{"tenant": "*", "tokens_per_min": 10_000_000}], {})
    desk.calls.replace(desk.routes())
    await desk.make()
    (state,) = desk.calls.rates.states()
    used = [one.input_tokens + one.output_tokens for one in desk.records]
    assert state.tokens == sum(used) > max(used)


async def test_what_a_call_used_before_it_was_stopped_counts_in_the_rates() -> None:
    spent = Completion(input_tokens=700, output_tokens=300)
    torn = BackendBroken(component="a", status=503, reason="torn", spent=spent)
    desk = Desk(a=raises(lambda: torn))
    desk.retries = 1
    desk.rates = rates.read([{"tenant": "*", "tokens_per_min": 10_000_000}], {})
    desk.calls.replace(desk.routes())
    stopped = Cancellation()
    making = asyncio.create_task(desk.calls.make(request(), stopped))
    await until(lambda: len(desk.records) == 1)
    stopped.cancel("enough")  # in the pause before its only backend is asked again
    reply = await asyncio.wait_for(making, BOUND_S)
    assert reply.error is not None
    assert reply.error.code == "call_cancelled"
    assert [one.tokens for one in desk.calls.rates.states()] == [1_000]


async def test_a_backend_that_fails_again_and_again_is_left_alone_and_tried_later() -> None:
    desk = Desk(a=raises(broken), b=answers())
    for number in range(4):
        await desk.make(f"c{number}")
    assert [r.backend for r in desk.records] == ["a", "b"] * 3 + ["b"]
    desk.backends["a"].behaviour = answers().behaviour
    desk.now_ms += 500
    assert (await desk.make("trial")).backend == "a"
    assert desk.calls.scheduler.health.breakers["a"].state is BreakerState.CLOSED


async def test_a_tenant_whose_calls_break_the_engine_does_not_keep_others_from_it() -> None:
    async def breaks(request: CallRequest) -> Completion:
        if request.attribution.tenant == "mallory":
            raise broken()
        return Completion(text="tidal")

    desk = Desk(a=ScriptedBackend(breaks))
    for number in range(3):
        await desk.make(f"m{number}", attribution=Attribution(tenant="mallory"))
    held = (await desk.make("m3", attribution=Attribution(tenant="mallory"))).error
    assert held is not None
    assert (held.code, held.state) == ("backends_unavailable", "open")
    assert held.retry_at_ms is not None
    assert (await desk.make("c", attribution=Attribution(tenant="acme"))).error is None


async def test_a_server_that_nobody_can_connect_to_is_left_alone_by_all() -> None:
    async def gone(_: CallRequest) -> Completion:
        raise BackendUnreachable(component="a", reason="refused", unconnected=True)

    desk = Desk(a=ScriptedBackend(gone))
    for number in range(3):
        await desk.make(f"c{number}", attribution=Attribution(tenant="acme"))
    error = (await desk.make("d", attribution=Attribution(tenant="globex"))).error
    assert error is not None
    assert error.code == "backends_unavailable"


async def test_what_a_backend_has_no_counterpart_for_is_answered_by_another() -> None:
    def unsuited() -> Exception:
        return BackendUnsuited(component="a", status="request", reason="`n`: one answer only")

    desk = Desk(a=raises(unsuited), b=says("tidal"))
    assert (await desk.make()).text == "tidal"
    desk = Desk(a=raises(unsuited))
    error = (await desk.make()).error
    assert error is not None
    assert (error.code, error.error_class) == ("backend_refused", "invalid")


@pytest.mark.parametrize(("timeout_ms", "code"), [(5.0, None), (5_000.0, "backends_unavailable")])
async def test_calls_with_no_time_to_connect_say_nothing_of_a_backend_and_cost_nothing(
    timeout_ms: float, code: str | None
) -> None:
    """Whoever allows a call a few milliseconds would else keep every other tenant from the backend."""

    async def unconnected(request: CallRequest) -> Completion:
        if request.attribution.tenant == "mallory":
            raise EndpointErrors("a", "", lambda: 0.0).unanswered(ConnectingTimedOut(), timeout_ms)
        return Completion(text="tidal")

    desk = Desk(a=ScriptedBackend(unconnected))
    for number in range(5):
        await desk.make(f"m{number}", attribution=Attribution(tenant="mallory"))
    error = (await desk.make("c", attribution=Attribution(tenant="acme"))).error
    assert (None if error is None else error.code) == code
    assert not any(record.cost_usd for record in desk.records)


async def test_where_every_breaker_is_open_the_call_fails_at_once_with_when_to_come_back() -> None:
    desk = Desk(a=raises(broken))
    for number in range(3):
        await desk.make(f"c{number}")
    error = (await desk.make("c3")).error
    assert error is not None
    assert (error.code, error.error_class, error.component, error.state) == (
        "backends_unavailable",
        ErrorClass.UNAVAILABLE,
        "writer",
        "open",
    )
    assert error.retry_at_ms is not None
    assert 300 <= error.retry_at_ms - NOW_MS <= 500
    assert error.alternatives == ()


async def test_those_who_wait_go_elsewhere_or_away_when_the_breaker_opens() -> None:
    gone = asyncio.Event()

    async def dies(_: CallRequest) -> Completion:
        await gone.wait()
        raise broken()

    desk = Desk(a=ScriptedBackend(dies))
    desk.limit = 3
    desk.calls.replace(desk.routes())
    served = [asyncio.create_task(desk.make(f"c{i}")) for i in range(3)]
    await until(lambda: len(desk.backends["a"].timeouts_ms) == 3)
    waiting = asyncio.create_task(desk.make("waits"))
    await until(lambda: len(desk.calls.scheduler.queue) == 1)
    gone.set()
    error = (await asyncio.wait_for(waiting, BOUND_S)).error
    assert error is not None
    assert error.code in ("backends_unavailable", "backend_broken")
    await asyncio.gather(*served)


async def test_a_call_that_nothing_suits_is_refused_with_what_is_missing() -> None:
    desk = Desk(a=answers())
    error = (await desk.make(requires={"residency": "eu"})).error
    assert error is not None
    assert (error.code, error.error_class) == ("no_backend_suits", ErrorClass.INVALID)
    assert "does not keep data in `eu`" in error.message


async def test_a_model_with_retries_asks_the_same_backend_again_after_a_pause() -> None:
    desk = Desk(a=raises(broken))
    desk.retries = 1
    desk.calls.replace(desk.routes())
    reply = await desk.make()
    assert reply.error is not None
    assert desk.booked() == [
        ("c", "a", "error", "backend_broken"),
        ("c:r1", "a", "error", "backend_broken"),
    ]


@pytest.mark.parametrize("retries", [0, 1, None])
async def test_litellms_fallbacks_are_asked_when_its_retries_are_used_up(
    retries: int | None,
) -> None:
    entries = [
        {
            "model_name": model,
            "litellm_params": {"model": "openai/m"},
            "model_info": {"id": backend},
        }
        for model, backend in (("writer", "a"), ("writer", "b"), ("spare", "c"), ("other", "d"))
    ]
    router = {"fallbacks": [{"writer": ["spare"]}], "num_retries": retries}
    rig = Rig(
        {"model_list": entries, "router_settings": router}, a=breaks(), b=breaks(), c=says("x")
    )
    reply = await rig.make()
    assert (reply.text, reply.backend) == ("x", "c")
    assert rig.table.table.models["other"].retries == retries


async def test_a_full_room_sends_away_the_least_urgent() -> None:
    release = asyncio.Event()
    desk = Desk(a=waits(release))
    desk.max_waiting = 1
    desk.calls.replace(desk.routes())
    first = asyncio.create_task(desk.make("first"))
    await asyncio.wait_for(desk.backends["a"].called.wait(), BOUND_S)
    batch = asyncio.create_task(desk.make("batch", priority=Priority.BATCH))
    await until(lambda: len(desk.calls.scheduler.queue) == 1)
    urgent = asyncio.create_task(desk.make("urgent", priority=Priority.INTERACTIVE))
    error = (await asyncio.wait_for(batch, BOUND_S)).error
    assert error is not None
    assert (error.code, error.state) == ("backends_busy", "full")
    release.set()
    await asyncio.gather(first, urgent)
    assert [r.call_id for r in desk.records] == ["first", "urgent"]


async def test_two_hundred_calls_of_a_run_spend_its_budget_for_a_hundred_and_not_more() -> None:
    async def half_a_dollar(_: CallRequest) -> Completion:
        return Completion(text="tidal", output_tokens=500_000)

    desk = Desk(a=ScriptedBackend(half_a_dollar))
    desk.limit = 64
    desk.calls.replace(desk.routes())
    calls = [
        desk.make(f"c{number}", budget_usd="50", max_tokens=1_000_000) for number in range(200)
    ]
    replies = await asyncio.gather(*calls)
    refused = [reply.error for reply in replies if reply.error is not None]
    assert sum(record.cost_usd for record in desk.records) == 50
    assert len(refused) == 100
    assert {(error.code, error.error_class, error.budget_left_usd) for error in refused} == {
        ("budget_exceeded", ErrorClass.BUDGET, "0.0")
    }


async def test_a_failed_call_releases_what_was_reserved_for_it() -> None:
    desk = Desk(a=raises(lambda: BackendDenied(component="a", status=401, reason="key")))
    await desk.make("c1", budget_usd="1.5")
    desk.backends["a"].behaviour = answers().behaviour
    assert (await desk.make("c2", budget_usd="1.5")).error is None


async def test_a_retry_is_not_made_when_the_budget_is_spent() -> None:
    spent = Completion(input_tokens=2_000_000)
    torn = BackendBroken(component="a", status=503, reason="torn", spent=spent)
    desk = Desk(a=raises(lambda: torn), b=answers())
    reply = await desk.make(budget_usd="1.9")
    assert reply.error is not None
    assert (reply.error.code, reply.error.budget_left_usd) == ("backend_broken", "0")
    assert len(desk.records) == 1


async def test_a_call_that_waits_for_money_can_be_cancelled() -> None:
    release = asyncio.Event()
    desk = Desk(a=waits(release))
    desk.limit = 9
    desk.calls.replace(desk.routes())
    much = {"budget_usd": "3", "max_tokens": 2_000_000}
    first = asyncio.create_task(desk.make("first", **much))
    await asyncio.wait_for(desk.backends["a"].called.wait(), BOUND_S)
    cancellation = Cancellation()
    second = asyncio.create_task(desk.calls.make(request("second", **much), cancellation))
    await until(lambda: desk.calls.spending.waiting == 1)
    cancellation.cancel("someone asked for it")
    error = (await asyncio.wait_for(second, BOUND_S)).error
    release.set()
    await first
    assert error is not None
    assert (error.code, len(desk.records)) == ("call_cancelled", 1)


async def test_a_call_to_an_unpriced_model_under_a_budget_is_free_or_refused_as_the_rules_say() -> (
    None
):
    desk = Desk(a=answers())
    desk.prices = Prices()
    codes = []
    for unpriced in ("allow", "refuse"):
        desk.budgets = BudgetRules(unpriced=unpriced)
        desk.calls.replace(desk.routes())
        reply = await desk.make(unpriced, budget_usd="0.01")
        codes.append(reply.error.code if reply.error else "")
    assert codes == ["", "model_unpriced"]


@pytest.mark.parametrize(
    ("prices", "unpriced", "asks"),
    [
        ({"output_usd_per_mtok": "1000"}, "allow", False),
        ({"output_usd_per_mtok": "1"}, "allow", True),
        ({}, "allow", True),
        ({}, "refuse", False),
    ],
)
@pytest.mark.parametrize("own", ["fails", "rests", "does not suit"])
async def test_a_fallback_is_asked_only_if_the_budget_has_room_at_its_own_price(
    prices: dict[str, str], unpriced: Literal["allow", "refuse"], asks: bool, own: str
) -> None:
    models = {
        "writer": {"backends": [backend("a")], "fallbacks": ["spare"]},
        "spare": {"backends": [backend("b", prices=prices, residency="eu")]},
    }
    rig = Rig(models, a=breaks(), b=says("tidal"))
    rig.calls.replace(replace(rig.table, budgets=BudgetRules(unpriced=unpriced)))
    if own == "rests":
        rig.calls.scheduler.health.rest("a", rig.now_ms + 1e6)
    requires = {"residency": "eu"} if own == "does not suit" else {}
    reply = await rig.make(max_tokens=1_000, budget_usd="0.01", requires=requires)
    assert len(rig.backends["b"].requests) == asks
    if asks:
        assert reply.text == "tidal"
    else:
        assert reply.error is not None
        refused = "model_unpriced" if unpriced == "refuse" else "budget_exceeded"
        codes = {"fails": "backend_broken", "rests": "backends_busy", "does not suit": refused}
        assert reply.error.code == codes[own]
    assert rig.calls.scheduler.demand("b") == (0, 0)
    assert rig.calls.spending.left_usd(routing_request(budget_usd="0.01")) == Decimal("0.01") - sum(
        one.cost_usd for one in rig.records
    )


async def test_an_error_tells_what_is_left_of_time_and_money() -> None:
    desk = Desk(a=raises(lambda: BackendDenied(component="a", status=401, reason="key")))
    reply = await desk.make(budget_usd="9", budget_left_usd="5")
    assert reply.error is not None
    assert (reply.error.slack_ms, reply.error.budget_left_usd) == (60_000, "5")


async def test_a_conversation_goes_back_to_the_replica_that_has_it() -> None:
    release = asyncio.Event()
    desk = Desk(a=waits(release), b=waits(release))
    desk.prefix_cache = PrefixCache(tokens=100_000, block_tokens=16)
    desk.limit = 9
    desk.calls.replace(desk.routes())
    said: dict[str, list[dict[str, str]]] = {"x": [], "y": []}

    def turn(who: str, number: int) -> asyncio.Task[CallReply]:
        said[who].append({"role": "user", "content": f"{who} says {number} " * 40})
        return asyncio.create_task(desk.make(f"{who}{number}", messages=tuple(said[who])))

    together = [turn("x", 0), turn("y", 0)]
    await asyncio.wait_for(desk.backends["b"].called.wait(), BOUND_S)
    release.set()
    homes = [(await one).backend for one in together]
    later = [(await turn(who, number)).backend for number in (1, 2) for who in "yx"]
    assert (homes, later) == (["a", "b"], ["b", "a", "b", "a"])


async def test_a_call_is_announced_before_its_backend_is_asked() -> None:
    desk = Desk(a=raises(broken), b=answers())
    seen: list[list[str]] = []

    async def looks(_: CallRequest) -> Completion:
        seen.append(list(desk.opened))
        raise broken()

    desk.backends["a"].behaviour = looks
    await desk.make()
    assert (seen, desk.opened) == ([["c"]], ["c", "c:r1"])


async def test_a_call_that_another_gateway_had_begun_is_booked_under_an_id_of_its_own() -> None:
    desk = Desk(a=raises(broken), b=answers())
    desk.opened = ["c", "c:t1"]
    reply = await desk.make()
    assert reply.call_id == "c"
    assert [record.call_id for record in desk.records] == ["c:t2", "c:t2:r1"]


async def test_a_function_is_not_announced_for_it_dies_with_the_gateway() -> None:
    desk = Desk(a=answers())
    desk.kind = "function"
    desk.calls.replace(desk.routes())
    await desk.make()
    assert desk.opened == []


async def test_a_call_cancelled_while_it_is_announced_is_booked_and_not_made() -> None:
    desk = Desk(a=answers())
    cancellation = Cancellation()

    async def open_slowly(opened: CallOpened) -> Said:
        cancellation.cancel("someone asked for it")
        return Said(first=True)

    desk.open = open_slowly  # type: ignore[method-assign]
    reply = await desk.calls.make(request(), cancellation)
    assert reply.error is not None
    assert desk.booked() == [("c", "a", "cancelled", "call_cancelled")]
    assert desk.backends["a"].timeouts_ms == []


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until a condition holds that only they can bring about."""
    async with asyncio.timeout(BOUND_S):
        while not holds():  # noqa: ASYNC110 - a waiting call announces itself to nobody
            await asyncio.sleep(0)


# ---- streams --------------------------------------------------------------------------------


class Seen:
    """What a door was given while an answer was made."""

    def __init__(self) -> None:
        self.text = ""

    async def __call__(self, chunk: Chunk) -> None:
        self.text += chunk.text


async def stream(desk: Desk, seen: Seen, cancellation: Cancellation | None = None) -> CallReply:
    request = CallRequest(call_id="c", model="writer", deadline_at_ms=NOW_MS + 60_000)
    made = desk.calls.make(request, cancellation or Cancellation(), seen)
    return await asyncio.wait_for(made, BOUND_S)


async def test_chunks_go_to_whoever_asked_for_them() -> None:
    desk, seen = Desk(a=answers().saying("ti", "dal")), Seen()
    reply = await stream(desk, seen)
    assert (seen.text, reply.text, reply.error) == ("tidal", "tidal", None)


async def test_a_backend_that_fails_before_its_first_chunk_leads_to_the_next() -> None:
    desk = Desk(a=raises(broken), b=answers().saying("tidal"))
    seen = Seen()
    reply = await stream(desk, seen)
    assert (seen.text, reply.backend) == ("tidal", "b")


async def test_nobody_else_is_asked_once_the_caller_has_seen_a_part() -> None:
    desk = Desk(a=raises(broken).saying("ti"), b=answers().saying("tidal"))
    seen = Seen()
    reply = await stream(desk, seen)
    assert reply.error is not None
    assert (seen.text, reply.backend, reply.error.code) == ("ti", "a", "backend_broken")


async def test_a_prompt_that_is_only_read_ahead_does_not_make_the_calls_of_its_node_fast() -> None:
    rig = Rig({"writer": {"backends": [backend("a")]}}, a=says("tidal"))
    kind = ("writer", "report", "draft")
    for _ in range(8):
        rig.calls.scheduler.durations.add(kind, "a", 5_000.0)
    for number in range(20):
        await rig.make(f"{number}:prefill", task=PREFILL, max_tokens=1, budget_usd="10")
    assert len(rig.records) == 20
    assert rig.calls.scheduler.durations.of_kind(kind, 0.5) == 5_000.0
    assert not rig.calls.scheduler.is_fast(kind, guess=True)


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_backend_is_not_slow_because_its_readers_are(at_once: bool) -> None:
    rule = {"slow_ms": 30, "min_calls": 5}
    rig = Rig({"writer": {"backends": [backend("a", breaker=rule)]}}, a=says("tidal"))

    async def take(_: Chunk) -> None:
        await asyncio.sleep(0.1)
        if not at_once:
            rig.now_ms += 100.0

    calls = [partial(rig.make, f"{n}", chunks=take) for n in range(10)]
    if at_once:
        await asyncio.gather(*(call() for call in calls))
    else:
        for call in calls:
            await call()
    assert (await rig.make("again")).text == "tidal"
    assert rig.calls.scheduler.durations.of_replica("a", 1.0) == pytest.approx(0.0, abs=5.0)


async def test_a_stream_that_was_stopped_is_booked_with_what_came() -> None:
    backend = waits(asyncio.Event()).saying("ti", "dal")
    desk, cancellation = Desk(a=backend), Cancellation()
    began = asyncio.Event()

    class Telling(Seen):
        async def __call__(self, chunk: Chunk) -> None:
            await super().__call__(chunk)
            if self.text == "tidal":
                began.set()

    making = asyncio.create_task(stream(desk, Telling(), cancellation))
    await asyncio.wait_for(began.wait(), BOUND_S)
    cancellation.cancel("nobody listens")
    await making
    (booked,) = desk.records
    assert (booked.status, booked.output_tokens) == ("cancelled", 2)
