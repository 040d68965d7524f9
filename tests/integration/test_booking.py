"""Booking over real NATS: records share messages, none is lost, and each caller waits for its own."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from gateway_process import opened, records
from hocket.gateway.booking import MAX_RECORDS, Booking
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.bus import Bus, BusUnavailable
from hocket.kit.streams import ensure_streams
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, CallOpened, UsageRecord

BOUND_S = 60.0


def booking(bus: Bus) -> Booking:
    return Booking(bus, GatewayMetrics(CollectorRegistry()))


def record(number: int) -> UsageRecord:
    return UsageRecord(
        call_id=f"c{number:03}",
        attribution=Attribution(run_id="r1"),
        model="writer",
        backend="b",
        status="ok",
        started_at_ms=1_800_000_000_000.0,
        latency_ms=5.0,
    )


def opening(call_id: str) -> CallOpened:
    return CallOpened(
        call_id=call_id,
        attribution=Attribution(run_id="r1"),
        model="writer",
        backend="b",
        started_at_ms=1_800_000_000_000.0,
        deadline_at_ms=1_800_000_060_000.0,
    )


async def messages(bus: Bus) -> int:
    return int((await bus.js.stream_info(subjects.USAGE)).state.messages)


async def booked(bus: Bus) -> list[str]:
    return [one.call_id for one in await records(bus)]


async def test_records_that_end_together_and_while_a_message_is_under_way_share_the_next(
    bus: Bus,
) -> None:
    books = booking(bus)
    first = asyncio.create_task(books.book(record(0)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it was sent
    await asyncio.gather(first, *(books.book(record(number)) for number in range(1, 40)))
    assert await booked(bus) == [f"c{number:03}" for number in range(40)]
    assert await messages(bus) == 2


async def test_a_message_holds_a_bounded_number_of_records(bus: Bus) -> None:
    books, number = booking(bus), 2 * MAX_RECORDS + 1
    await asyncio.gather(*(books.book(record(one)) for one in range(number)))
    assert (len(set(await booked(bus))), await messages(bus)) == (number, 3)


async def test_records_wait_for_a_stream_that_is_not_there(bus: Bus) -> None:
    await bus.js.delete_stream(subjects.USAGE)
    books = booking(bus)
    waiting = asyncio.gather(*(books.book(record(number)) for number in range(3)))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    await ensure_streams(bus)
    await asyncio.wait_for(waiting, BOUND_S)
    assert sorted(await booked(bus)) == ["c000", "c001", "c002"]


async def test_a_record_that_was_not_stored_is_not_said_to_be(nats_url: str) -> None:
    closed = await Bus.connect(nats_url, name="closed")
    books = booking(closed)
    await closed.close()
    with pytest.raises(BusUnavailable):
        await asyncio.wait_for(books.book(record(1)), BOUND_S)


async def test_only_the_first_to_announce_a_call_is_told_so(bus: Bus) -> None:
    one, other = booking(bus), booking(bus)
    first, second = await one.open(opening("c1")), await other.open(opening("c1"))
    assert (await first.first(), await second.first()) == (True, False)
    assert await opened(bus) == ["c1"]
