"""What a gateway posts to the logs of runs that calls of its HTTP door name, over real NATS."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from structlog.testing import capture_logs

from hocket.gateway.accounting import run_charges
from hocket.gateway.accounting.run_charges import ChargingRecorder, RunCharges
from hocket.kit.nats.bus import Bus
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.messages import Attribution, CallOpened, CallRefused, RunCharged, UsageRecord

BOUND_S = 60
PARTITIONS = 4
SEALS = Capabilities([b"the key of usage records, for tests"])
RUN, OTHER = ids.run_id("acme", "one"), ids.run_id("acme", "two")


class Books:
    """Books nothing, and remembers what was booked."""

    def __init__(self) -> None:
        self.booked: list[str] = []

    async def open(self, opened: CallOpened) -> Any:
        raise NotImplementedError

    async def book(self, record: UsageRecord) -> None:
        self.booked.append(record.call_id)

    def refuse(self, refused: CallRefused) -> None:
        raise NotImplementedError


def record(run_id: str | None = RUN, cost: str = "0.1", call_id: str = "http:c") -> UsageRecord:
    return UsageRecord(
        call_id=call_id,
        attribution=Attribution(tenant="acme", run_id=run_id),
        model="m",
        backend="b",
        status="ok",
        cost_usd=Decimal(cost),
        started_at_ms=0.0,
        latency_ms=1.0,
    )


async def posted(bus: Bus) -> list[RunCharged]:
    """Return the charges in LOG, each of which is sealed and stands in the log of its run."""
    state = (await bus.js.stream_info(subjects.LOG)).state
    found = []
    for seq in range(max(state.first_seq, 1), state.last_seq + 1):
        message = await bus.js.get_msg(subjects.LOG, seq, direct=False)
        assert message.data is not None
        event = RunCharged.model_validate_json(message.data)
        partition = ids.partition_of(event.run_id, PARTITIONS)
        assert message.subject == subjects.log(partition, "charged")
        assert SEALS.is_sealed((message.headers or {})[SEAL], "charged", message.data)
        found.append(event)
    return found


@pytest.fixture
def charges(bus: Bus) -> RunCharges:
    return RunCharges(bus, SEALS, PARTITIONS)


async def test_each_post_tells_the_whole_sum_of_its_run(bus: Bus, charges: RunCharges) -> None:
    books = Books()
    recorder = ChargingRecorder(books, charges)
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*(recorder.book(record(call_id=f"http:{n}")) for n in range(20)))
        await recorder.book(record(OTHER, "0.7"))
    told = await posted(bus)
    assert len(books.booked) == 21
    assert [one.total_usd for one in told[:-1]] == [Decimal(n) / 10 for n in range(1, 21)]
    assert len({one.source for one in told}) == 2
    assert (told[-1].run_id, told[-1].total_usd) == (OTHER, Decimal("0.7"))


@pytest.mark.parametrize(
    "made",
    [
        record(call_id="r0:ask:1:1"),
        record(run_id=None),
        record(run_id="an-agents-own"),
        record(cost="0"),
    ],
    ids=["a worker's, which its step tells of", "no run", "not Hocket's run", "free"],
)
async def test_other_calls_are_booked_and_charge_nothing(
    bus: Bus, charges: RunCharges, made: UsageRecord
) -> None:
    books = Books()
    await ChargingRecorder(books, charges).book(made)
    assert books.booked == [made.call_id]
    assert await posted(bus) == []


async def test_costs_that_no_reply_tells_are_posted_with_their_step_under_another_source(
    bus: Bus, charges: RunCharges
) -> None:
    who = Attribution(tenant="acme", run_id=RUN, step="look")
    async with asyncio.timeout(BOUND_S):
        await charges.charge(record())
        await charges.charge_untold("r0:look:1:1", who, Decimal("0.2"))
        await charges.charge_untold("http:c", who, Decimal("0.2"))
        await charges.charge_untold("r0:look:1:2", who, Decimal("0.3"))
    door, first, second = await posted(bus)
    assert (door.untold, door.step, door.total_usd) == (False, None, Decimal("0.1"))
    assert (first.untold, first.step, first.total_usd) == (True, "look", Decimal("0.2"))
    assert (second.source, second.total_usd) == (first.source, Decimal("0.5"))
    assert door.source != first.source


async def test_a_run_that_was_forgotten_and_comes_again_has_another_source(
    bus: Bus, charges: RunCharges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_charges, "MAX_RUNS", 1)
    for run_id in (RUN, OTHER, RUN):
        await charges.charge(record(run_id))
    told = await posted(bus)
    assert {one.total_usd for one in told} == {Decimal("0.1")}
    assert len({one.source for one in told}) == 3


async def test_a_caller_who_goes_away_is_charged_all_the_same(
    bus: Bus, charges: RunCharges
) -> None:
    gone = asyncio.create_task(charges.charge(record()))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone}, timeout=BOUND_S)
    await charges.charge(record())
    assert [one.total_usd for one in await posted(bus)] == [Decimal("0.1"), Decimal("0.2")]


async def test_what_the_log_refused_comes_with_the_runs_next_call(
    bus: Bus, charges: RunCharges
) -> None:
    config = (await bus.js.stream_info(subjects.LOG)).config
    config.max_msg_size = 10
    await bus.js.update_stream(config)
    with capture_logs() as logs:
        await asyncio.wait_for(charges.charge(record()), BOUND_S)
    assert "run_not_charged" in [line["event"] for line in logs]
    config.max_msg_size = -1
    await bus.js.update_stream(config)
    await charges.charge(record())
    assert [one.total_usd for one in await posted(bus)] == [Decimal("0.2")]


async def test_a_run_with_the_id_of_a_deleted_one_is_charged_its_own_calls_only(
    bus: Bus, charges: RunCharges
) -> None:
    who = Attribution(tenant="acme", run_id=RUN)
    for _ in range(2):
        await charges.charge(record())
        await charges.charge_untold("r0:look:1:1", who, Decimal("0.2"))
        charges.forget("acme", RUN)
    told = await posted(bus)
    assert [one.total_usd for one in told] == [Decimal("0.1"), Decimal("0.2")] * 2
    assert len({one.source for one in told}) == 4
