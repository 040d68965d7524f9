"""Booking over real NATS: records share messages, none is lost, and each caller waits for its own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.accounting import booking as accounting_booking
from hocket.gateway.accounting.booking import MAX_RECORDS, Booking
from hocket.gateway.accounting.journal_recovery import JournalRecovery
from hocket.gateway.accounting.usage_journal import LeftJournal, UsageJournal
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, CallOpened, UsageRecord
from support.gateway.gateway_process import opened, records

BOUND_S = 60.0


def booking(bus: Bus, journal: UsageJournal | None = None) -> Booking:
    return Booking(bus, GatewayMetrics(CollectorRegistry()), journal)


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


async def test_a_record_of_an_outage_is_left_for_the_next_gateway(
    bus: Bus, servers: EmbeddedServers, tmp_path: Path
) -> None:
    books = booking(bus, UsageJournal.create(tmp_path))
    await servers.nats.stop()
    while bus.connected:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(books.book(record(1)))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done, "it may be lost with this machine"
    await books.close(50)
    waiting.cancel()
    (path,) = await asyncio.to_thread(lambda: [*tmp_path.glob("*.records")])
    left = LeftJournal.take(path)
    assert left is not None
    assert len(left.unsettled()[0]) == 1
    await servers.nats.start()


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


@pytest.mark.parametrize("ours", [True, False])
async def test_an_announcement_that_was_repeated_is_the_first_unless_somebody_else_made_it(
    nats_url: str, ours: bool
) -> None:
    """Its acknowledgement is lost; sent again, it is a repeat, of its own or of the other one."""
    bus = await Bus.connect(nats_url, name="announcer")
    await ensure_streams(bus)
    if not ours:
        other = opening("c1").model_copy(update={"gateway": "another"})
        assert await (await booking(bus).open(other)).first()
    direct, lost = bus.nc.wire.direct, asyncio.Event()
    (inbox,) = (sid for sid, take in direct.items() if take == bus.publisher.acknowledged)
    direct[inbox] = lambda frame: lost.set()
    announced = await booking(bus).open(opening("c1"))
    await asyncio.wait_for(lost.wait(), BOUND_S)
    direct[inbox] = bus.publisher.acknowledged
    bus.publisher.publish_again()
    assert await asyncio.wait_for(announced.first(), BOUND_S) is ours
    assert await opened(bus) == ["c1"]
    await bus.close()


async def test_records_in_a_journal_are_not_waited_for_and_share_a_message(
    bus: Bus, tmp_path: Path
) -> None:
    journal = UsageJournal.create(tmp_path)
    books = booking(bus, journal)
    for number in range(20):
        await books.book(record(number))
    assert journal.unsettled == 20
    await books.close(BOUND_S * 1000)
    assert (journal.unsettled, len(await booked(bus)), await messages(bus)) == (0, 20, 1)


async def test_a_record_without_room_in_the_journal_is_stored_when_book_returns(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = UsageJournal.create(tmp_path)
    books = booking(bus, journal)
    monkeypatch.setattr(journal, "keep", lambda record: None)
    await books.book(record(1))
    assert await booked(bus) == ["c001"]


async def test_what_could_not_be_stored_before_the_end_is_left_and_recovered_once(
    bus: Bus, tmp_path: Path
) -> None:
    await bus.js.delete_stream(subjects.USAGE)
    books = booking(bus, UsageJournal.create(tmp_path))
    for number in range(3):
        await books.book(record(number))
    await books.close(1.0)
    await ensure_streams(bus)
    recovery = JournalRecovery(tmp_path, booking(bus))
    assert (await recovery.look(), await recovery.look()) == (3, 0)
    assert sorted(set(await booked(bus))) == ["c000", "c001", "c002"]
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240 - a temporary folder


async def test_what_there_was_no_memory_to_send_is_sent_a_moment_later(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, failed = bus.publish_durable, asyncio.Event()

    def short(*arguments: Any, **named: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise MemoryError
        return publish(*arguments, **named)

    monkeypatch.setattr(bus, "publish_durable", short)
    monkeypatch.setattr(accounting_booking, "REFUSED_PAUSE_MS", 1.0)
    journal = UsageJournal.create(tmp_path)
    books = booking(bus, journal)
    for number in range(3):
        await books.book(record(number))
    await asyncio.wait_for(failed.wait(), BOUND_S)
    await books.close(BOUND_S * 1000)
    assert (journal.unsettled, sorted(await booked(bus))) == (0, ["c000", "c001", "c002"])


async def test_only_the_journal_of_a_dead_gateway_is_recovered(bus: Bus, tmp_path: Path) -> None:
    living = UsageJournal.create(tmp_path)
    books = booking(bus, living)
    await books.book(record(1))
    assert await JournalRecovery(tmp_path, books).look() == 0
    await books.close(BOUND_S * 1000)
