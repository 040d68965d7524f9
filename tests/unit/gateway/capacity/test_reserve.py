"""Slots that are reserved for interactive calls: who may have them, and for how long."""

import asyncio

import pytest

from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.capacity import reserve as module
from hocket.gateway.capacity.reserve import RESERVED_FOR_MS
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.capacity.slot import PlacementRequest, Slot
from hocket.gateway.core.config.table import BackendSpec, Hosting, ModelSpec, PoolSpec, RoutingTable
from hocket.gateway.core.routing.queue import PATIENCE_MS
from hocket.gateway.core.routing.replica_choice import CallFacts
from hocket.schemas.messages import Priority

NOW_MS = 1_000_000.0
BOUND_S = 60.0
PLACES = 16
KEPT = 2
"""An eighth of them."""


class Clock:
    now_ms = NOW_MS

    def __call__(self) -> float:
        return self.now_ms


def backend(
    name: str, limit: int, *, pool: str = "", hosting: Hosting = "dedicated"
) -> BackendSpec:
    return BackendSpec(
        name, "openai", "m", base_url="http://x", limit=limit, pool=pool, hosting=hosting
    )


def table(*backends: BackendSpec, **pools: PoolSpec) -> RoutingTable:
    return RoutingTable({"writer": ModelSpec(backends)}, pools=pools)


def wish(priority: Priority = Priority.BATCH, *, fast: bool = False) -> PlacementRequest:
    facts = CallFacts("writer", fast=fast, urgent=priority is Priority.INTERACTIVE)
    return PlacementRequest(facts, ("writer", "p", "n"), priority, NOW_MS + 3_600_000)


async def takes(scheduler: CallScheduler, wanted: PlacementRequest) -> Slot:
    place = await asyncio.wait_for(scheduler.place(wanted, Cancellation()), BOUND_S)
    assert place is not None
    return place


async def interactive_comes(scheduler: CallScheduler) -> None:
    (await takes(scheduler, wish(Priority.INTERACTIVE))).release(unused=True)


def fill(scheduler: CallScheduler, wanted: PlacementRequest) -> list[Slot]:
    """Take what can be had at once."""
    places = []
    while (place := scheduler.place_now(wanted, scheduler.health.breakers.keys())) is not None:
        places.append(place)
    return places


async def lines_up(scheduler: CallScheduler, wanted: PlacementRequest) -> "asyncio.Task[Slot]":
    before = len(scheduler.queue)
    waiting = asyncio.create_task(takes(scheduler, wanted))
    await settles()
    assert len(scheduler.queue) == before + 1
    return waiting


async def settles() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_without_interactive_calls_every_place_is_everybodys() -> None:
    assert len(fill(CallScheduler(table(backend("a", PLACES)), Clock()), wish())) == PLACES


async def test_while_interactive_calls_come_the_others_leave_some_places_free() -> None:
    scheduler = CallScheduler(table(backend("a", PLACES)), Clock())
    await interactive_comes(scheduler)
    assert len(fill(scheduler, wish(Priority.STANDARD))) == PLACES - KEPT
    assert len(fill(scheduler, wish(Priority.INTERACTIVE))) == KEPT


async def test_they_are_everybodys_again_when_no_interactive_call_has_come_for_a_while() -> None:
    clock = Clock()
    scheduler = CallScheduler(table(backend("a", PLACES)), clock)
    await interactive_comes(scheduler)
    clock.now_ms += RESERVED_FOR_MS - 1
    assert len(fill(scheduler, wish())) == PLACES - KEPT
    clock.now_ms += 1
    assert len(fill(scheduler, wish())) == KEPT


async def test_who_waits_has_them_then_although_no_call_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RESERVED_FOR_MS", 10.0)
    clock = Clock()
    scheduler = CallScheduler(table(backend("a", PLACES)), clock)
    await interactive_comes(scheduler)
    fill(scheduler, wish())
    waiting = await lines_up(scheduler, wish())
    assert not waiting.done()
    clock.now_ms += 10.0
    await waiting


async def test_who_waited_before_the_interactive_call_came_has_them_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RESERVED_FOR_MS", 10.0)
    clock = Clock()
    scheduler = CallScheduler(table(backend("a", PLACES)), clock)
    taken = fill(scheduler, wish())
    waiting = await lines_up(scheduler, wish())
    interactive = await lines_up(scheduler, wish(Priority.INTERACTIVE))
    for _ in range(KEPT):
        taken.pop().release(unused=True)
    await interactive
    assert not waiting.done()
    clock.now_ms += 10.0
    await waiting


async def test_a_replica_keeps_its_share_where_others_of_its_pool_are_cold_or_full() -> None:
    two = table(backend("a", 8, pool="gpus"), backend("b", 8, pool="gpus"), gpus=PoolSpec(64))
    scheduler = CallScheduler(two, Clock())
    await interactive_comes(scheduler)
    assert len(fill(scheduler, wish())) == 7 + 7


async def test_a_pool_of_small_replicas_keeps_its_share_of_them_all() -> None:
    small = [backend(f"gpu{i}", 1, pool="gpus") for i in range(PLACES)]
    scheduler = CallScheduler(table(*small, gpus=PoolSpec(PLACES)), Clock())
    await interactive_comes(scheduler)
    assert len(fill(scheduler, wish())) == PLACES - KEPT


@pytest.mark.parametrize("places", [1, 2, 3])
async def test_of_very_few_places_none_is_kept(places: int) -> None:
    scheduler = CallScheduler(table(backend("a", places)), Clock())
    await interactive_comes(scheduler)
    assert len(fill(scheduler, wish())) == places


async def test_a_pool_may_keep_another_share_or_none() -> None:
    for share, kept in ((0.5, 8), (0.0, 0)):
        pool = PoolSpec(PLACES, interactive_share=share)
        scheduler = CallScheduler(table(backend("a", PLACES, pool="p"), p=pool), Clock())
        await interactive_comes(scheduler)
        assert len(fill(scheduler, wish())) == PLACES - kept


async def test_fast_calls_of_any_class_have_them_too() -> None:
    scheduler = CallScheduler(table(backend("a", PLACES)), Clock())
    await interactive_comes(scheduler)
    fill(scheduler, wish())
    assert len(fill(scheduler, wish(fast=True))) == KEPT


async def test_where_calls_spill_to_somebody_elses_machines_nothing_is_kept() -> None:
    scheduler = CallScheduler(
        table(backend("ours", 8), backend("cloud", 8, hosting="serverless")), Clock()
    )
    await interactive_comes(scheduler)
    assert len(fill(scheduler, wish())) == 16


async def test_a_place_that_comes_back_goes_to_who_may_have_it() -> None:
    scheduler = CallScheduler(table(backend("a", PLACES)), Clock())
    await interactive_comes(scheduler)
    taken = fill(scheduler, wish()) + fill(scheduler, wish(Priority.INTERACTIVE))
    batch = await lines_up(scheduler, wish())
    interactive = await lines_up(scheduler, wish(Priority.INTERACTIVE))
    taken.pop().release(unused=True)
    await interactive
    for _ in range(KEPT):
        taken.pop().release(unused=True)
    await settles()
    assert not batch.done()
    taken.pop().release(unused=True)
    await batch


async def test_interactive_calls_without_end_do_not_starve_one_that_is_out_of_patience() -> None:
    clock = Clock()
    scheduler = CallScheduler(table(backend("a", PLACES)), clock)
    await interactive_comes(scheduler)
    taken = fill(scheduler, wish(Priority.INTERACTIVE))
    batch = await lines_up(scheduler, wish())
    clock.now_ms += PATIENCE_MS[Priority.BATCH] - 1
    await lines_up(scheduler, wish(Priority.INTERACTIVE))
    taken.pop().release(unused=True)
    await settles()
    assert not batch.done()
    clock.now_ms += 1
    await lines_up(scheduler, wish(Priority.INTERACTIVE))
    taken.pop().release(unused=True)
    await batch


async def test_who_waits_for_a_pool_that_left_is_told() -> None:
    scheduler = CallScheduler(table(backend("a", PLACES)), Clock())
    await interactive_comes(scheduler)
    fill(scheduler, wish())
    waiting = await lines_up(scheduler, wish())
    scheduler.replace(RoutingTable({"other": ModelSpec((backend("b", 1),))}))
    with pytest.raises(Exception, match="writer"):
        await waiting
