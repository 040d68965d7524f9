"""Usage records that anybody can publish: only those that a gateway of this platform sealed are booked,
and what others tell of costs is kept."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.accounting.booking import Booking
from hocket.gateway.accounting.journal_recovery import JournalRecovery
from hocket.gateway.accounting.usage_journal import UsageJournal
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.nats import dead_letters, letter_budget
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers import record_pull
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process.capability_key import usage_seals_of
from hocket.kit.process.settings import Settings, read
from hocket.ledger.records import unsealed
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL, Capabilities, keys_of, usage_key_of
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import Attribution, CallOpened
from support.ledger_rig import drained, encoded, heard, publish, record, rows, running_ledger

SEALS = Capabilities([b"u" * 32])
FORGED_USD = Decimal(9)
BOUND_S = 60


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


def gateway(bus: Bus, journal: UsageJournal | None = None, **given: Any) -> Booking:
    return Booking(bus, GatewayMetrics(CollectorRegistry()), journal, **{"seals": SEALS} | given)


def costs(found: list[asyncpg.Record]) -> dict[str, Decimal]:
    return {row["call_id"]: row["cost_usd"] for row in found}


async def test_a_forged_record_before_the_real_one_is_kept_and_not_booked(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    real, forged = record("c1"), record("c1", cost_usd=FORGED_USD)
    async with running_ledger(bus, pool, ack_wait_ms=60_000.0, seals=SEALS):
        await publish(bus, encoded(forged))
        await drained(bus)
        await gateway(bus).book(real)
        await drained(bus)
        assert costs(await rows(pool)) == {"c1": real.cost_usd}
        (letter,) = await dead_letters.list_(bus, tenant="default")
        assert letter.error.code == "usage_not_sealed"
        assert letter.payload == encoded(forged)[0]


async def test_a_seal_is_of_one_message(bus: Bus, pool: asyncpg.Pool) -> None:
    (right,), (wrong,) = encoded(record("c1")), encoded(record("c2"))
    seal = SEALS.seal(subjects.USAGE_SUBJECT, right)
    other = Capabilities([b"o" * 32]).seal(subjects.USAGE_SUBJECT, right)
    async with running_ledger(bus, pool, ack_wait_ms=60_000.0, seals=SEALS):
        for body, header in ((wrong, seal), (right, other), (right, ""), (right, "\u20ac")):
            await bus.publish(subjects.USAGE_SUBJECT, body, headers={SEAL: header})
        await drained(bus)
        assert not await rows(pool)
        await bus.publish(subjects.USAGE_SUBJECT, right, headers={SEAL: seal})
        await drained(bus)
    assert set(costs(await rows(pool))) == {"c1"}


async def test_a_record_that_a_gateway_without_the_key_wrote_is_booked_when_it_is_redriven(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    spent = record("c1", cost_usd=FORGED_USD)
    async with running_ledger(bus, pool, ack_wait_ms=60_000.0, seals=SEALS):
        await gateway(bus, seals=None).book(spent)
        await drained(bus)
        (letter,) = await dead_letters.list_(bus)
        await dead_letters.redrive(bus, letter.seq, usage_seals=SEALS)
        await drained(bus)
        assert costs(await rows(pool)) == {"c1": FORGED_USD}
        assert not await dead_letters.list_(bus)


def charging(tenant: str) -> bytes:
    """Return a record that the ledger books, though it has to mend it."""
    (line,) = encoded(record("theirs", attribution=Attribution(tenant=tenant)))
    return line.replace(b'"theirs"', b'"theirs\\ud800"')


async def test_a_letter_with_a_record_that_cannot_be_read_is_no_tenants(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    (mine,) = encoded(record("mine", attribution=Attribution(tenant="acme")))
    await publish(bus, [mine + b"\n" + charging("rival")])
    async with running_ledger(bus, pool, ack_wait_ms=60_000.0, seals=SEALS):
        await drained(bus)
    assert await dead_letters.list_(bus, tenant="acme") == []
    (letter,) = await dead_letters.list_(bus, tenant=subjects.UNATTRIBUTED)
    assert letter.error.code == "usage_not_sealed"


async def test_who_redrives_a_letter_of_a_tenant_books_no_call_of_another(bus: Bus) -> None:
    (mine,) = encoded(record("mine", attribution=Attribution(tenant="acme")))
    await bus.publish(
        subjects.dead_letter("usage", "acme"),
        mine + b"\n" + charging("rival"),
        headers={dead_letters.SUBJECT: subjects.USAGE_SUBJECT},
    )
    with pytest.raises(dead_letters.DeadLetterForeign):
        await dead_letters.redrive(bus, 1, tenant="acme", usage_seals=SEALS)


async def test_what_was_in_a_journal_before_gateways_had_the_key_is_booked(
    bus: Bus, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    old = UsageJournal.create(tmp_path)
    for line in encoded(*(record(f"c{number}") for number in range(5))):
        old.keep(line)
    old.close()
    async with running_ledger(bus, pool, ack_wait_ms=60_000.0, seals=SEALS):
        assert await JournalRecovery(tmp_path, gateway(bus)).look() == 5
        await drained(bus)
    assert len(await rows(pool)) == 5
    assert not await dead_letters.list_(bus)


async def test_many_unsealed_records_share_letters_and_every_cost_is_kept(
    bus: Bus, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_pull, "FOLLOWS_MS", 250.0)  # full batches on a slow machine, too
    registry = CollectorRegistry()
    tenants = [f"t{number}" for number in range(30)]
    forged = encoded(
        *(
            record(f"c{number}", attribution=Attribution(tenant=tenants[number % 30]))
            for number in range(600)
        )
    )
    free = encoded(*(record(f"f{number}", cost_usd=Decimal(0)) for number in range(100)))
    await publish(bus, [*forged, *free, b"{", b"\n" * 100_000, b'{"cost_usd":"1e400"}'])
    async with running_ledger(bus, pool, ack_wait_ms=60_000.0, seals=SEALS, registry=registry):
        await drained(bus)
        assert not await rows(pool)
    letters = await dead_letters.list_(bus, limit=1_000)
    assert len(letters) <= 20
    kept = [line for letter in letters for line in letter.payload.split(b"\n")]
    assert sorted(kept) == sorted(forged)
    assert registry.get_sample_value("hocket_ledger_unsealed_total") == 703
    assert registry.get_sample_value("hocket_ledger_letters_not_kept_total") == 103


async def test_of_a_flood_of_unsealed_records_as_many_are_kept_as_there_is_room_for(
    bus: Bus, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = CollectorRegistry()
    forged = encoded(*(record(f"c{number}", cost_usd=FORGED_USD) for number in range(60)))
    room = len(forged[0]) * 30
    monkeypatch.setattr(unsealed, "UNSEALED_BYTES", room)
    monkeypatch.setattr(unsealed, "LETTER_RECORDS", 10)
    monkeypatch.setattr(letter_budget, "BYTES_PER_S", 0)
    await publish(bus, forged)
    async with running_ledger(bus, pool, ack_wait_ms=60_000.0, seals=SEALS, registry=registry):
        await drained(bus)
    letters = await dead_letters.list_(bus, limit=1_000)
    kept = [line for letter in letters for line in letter.payload.split(b"\n")]
    assert 0 < sum(map(len, kept)) <= room
    assert 0 < len(kept) < 60
    unkept_usd = registry.get_sample_value("hocket_ledger_unkept_usd_total")
    assert unkept_usd == float(FORGED_USD * (60 - len(kept)))


def opening(call_id: str) -> CallOpened:
    return CallOpened(
        call_id=call_id,
        attribution=Attribution(run_id="r1"),
        model="writer",
        backend="b",
        started_at_ms=1_800_000_000_000.0,
        deadline_at_ms=1_800_000_060_000.0,
    )


async def test_nobody_can_announce_a_call_that_a_gateway_is_about_to_make(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    forged = opening("c1").model_copy(update={"gateway": "forger"}).model_dump_json().encode()
    poison = "default/c1:opened"
    await bus.publish(subjects.CALL_OPENED, forged, msg_id=poison)
    assert await (await gateway(bus, seals=None).open(opening("c1"))).first() is False
    async with running_ledger(bus, pool, ack_wait_ms=60_000.0, seals=SEALS):
        await heard(bus)
        assert await pool.fetchval("SELECT count(*) FROM hocket.open_call") == 0
        announced = await gateway(bus).open(opening("c1"))
        assert await asyncio.wait_for(announced.first(), BOUND_S)
        await heard(bus)
    assert await pool.fetchval("SELECT gateway FROM hocket.open_call") != "forger"


def settings(**given: Any) -> Settings:
    return Settings(**given)


def test_who_seals_usage_records_can_make_no_capability() -> None:
    key = "k" * 40
    capabilities = Capabilities(keys_of(key))
    given = usage_seals_of(settings(capability_key=key))
    handed_on = usage_seals_of(settings(usage_key=usage_key_of(key)))
    assert given is not None
    assert handed_on is not None
    seal = given.seal("s", b"b")
    assert handed_on.is_sealed(seal, "s", b"b")
    assert not capabilities.is_sealed(seal, "s", b"b")
    assert usage_seals_of(settings()) is None
    with pytest.raises(InvalidInput, match="32 characters") as raised:
        read(usage_key="hush")
    assert raised.value.fields["field"] == "HOCKET_USAGE_KEY"
    assert "hush" not in str(raised.value)


def test_records_sealed_before_the_key_was_changed_are_booked() -> None:
    before = usage_seals_of(settings(capability_key="o" * 40))
    after = usage_seals_of(settings(capability_key=f"{'n' * 40},{'o' * 40}"))
    assert before is not None
    assert after is not None
    assert after.is_sealed(before.seal("s", b"b"), "s", b"b")


async def test_nobody_can_take_the_place_of_a_redriven_letter(bus: Bus) -> None:
    keys = Capabilities([b"k" * 32])
    line = encoded(record("c1"))[0]
    await bus.publish(
        subjects.dead_letter("usage", "default"),
        line,
        headers={dead_letters.SUBJECT: subjects.USAGE_SUBJECT},
    )
    await bus.publish(subjects.USAGE_SUBJECT, b"junk", msg_id="redrive:1")
    await dead_letters.redrive(bus, 1, capabilities=keys, usage_seals=SEALS)
    assert (await bus.js.get_last_msg(subjects.USAGE, subjects.USAGE_SUBJECT)).data == line


@pytest.mark.parametrize("seals", [None, SEALS], ids=["unreadable", "unsealed"])
async def test_a_letter_that_cannot_be_kept_now_is_kept_later_and_ends_no_ledger(
    bus: Bus, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, seals: Capabilities | None
) -> None:
    (good,) = encoded(record("c1"))
    message = good if seals else good.replace(b'"latency_ms":12.5', b'"latency_ms":"soon"')
    assert seals or message != good
    monkeypatch.setattr(unsealed, "UNSEALED_BYTES", len(message))
    monkeypatch.setattr(letter_budget, "BYTES_PER_S", 0)
    bury, failures = dead_letters.bury, 2

    async def away_at_first(*values: Any, **fields: Any) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise BusUnavailable(reason="no acknowledgement")
        await bury(*values, **fields)

    monkeypatch.setattr(dead_letters, "bury", away_at_first)
    await publish(bus, [message])
    async with running_ledger(bus, pool, seals=seals):
        await drained(bus)
    assert not failures
    letters = await dead_letters.list_(bus)
    assert {letter.payload for letter in letters} == {message}
    assert len(await rows(pool)) == (0 if seals else 1)
