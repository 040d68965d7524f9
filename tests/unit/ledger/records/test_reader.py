"""Messages into records, with the dead letters of a real NATS."""

import json
from decimal import Decimal

import pytest
from prometheus_client import CollectorRegistry

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.records.dead_records import DeadRecords
from hocket.ledger.records.reader import RecordReader
from hocket.ledger.records.record import MAX_RECORDS, SEPARATOR
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL, Capabilities, sealed
from support.ledger_rig import encoded, record

SENT_MS = 1_763_850_000_000
ACK = f"$JS.ACK.USAGE.ledger.1.1.1.{SENT_MS}000000.0"
SEALS = Capabilities([b"s" * 32])


class Read:
    """A reader, and what it counts."""

    def __init__(self, bus: Bus, seals: Capabilities | None = None) -> None:
        self.registry = CollectorRegistry()
        metrics = LedgerMetrics(self.registry)
        self.reader = RecordReader(bus, metrics, DeadRecords(bus, metrics), seals)

    async def of(self, *messages: RawMessage) -> list[tuple[str, tuple[str, ...]]]:
        """Return the calls of messages, each with what was amended."""
        entries = await self.reader.records_of(messages)
        return [(entry.record.call_id, entry.record.amended) for entry in entries]


def message(*lines: bytes, seals: Capabilities | None = None) -> RawMessage:
    data = SEPARATOR.join(lines)
    headers = sealed(seals, subjects.USAGE_SUBJECT, data) or {}
    head = b"NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()).encode() + b"\r\n"
    return RawMessage(subjects.USAGE_SUBJECT, ACK, data, head if headers else b"")


def unreadable(call_id: str, **fields: object) -> bytes:
    found = json.loads(encoded(record(call_id, cost_usd=Decimal("0.5")))[0])
    return json.dumps(found | fields).encode()


async def test_of_records_in_one_message_only_the_unreadable_one_is_a_dead_letter(
    bus: Bus,
) -> None:
    first, last = encoded(record("c1"), record("c3"))
    found = await Read(bus).of(message(first, unreadable("c2", started_at_ms="soon"), last))
    assert found == [("c1", ()), ("c2", ("started_at_ms",)), ("c3", ())]
    (letter,) = await dead_letters.list_(bus)
    assert letter.error.code == "usage_malformed"
    assert json.loads(letter.payload)["call_id"] == "c2"


async def test_a_time_that_cannot_be_read_is_when_the_record_was_sent(bus: Bus) -> None:
    (entry,) = await Read(bus).reader.records_of([message(unreadable("c", started_at_ms="soon"))])
    assert entry.record.started_at.timestamp() * 1000 == SENT_MS


@pytest.mark.parametrize("lines", [[b"{"], [b"x"] * (MAX_RECORDS + 1)])
async def test_what_tells_of_no_money_is_one_dead_letter_and_no_record(
    bus: Bus, lines: list[bytes]
) -> None:
    assert await Read(bus).of(message(*lines)) == []
    (letter,) = await dead_letters.list_(bus)
    assert letter.error.code == "usage_malformed"


async def test_with_a_key_only_what_a_gateway_sealed_is_read(bus: Bus) -> None:
    mine, forged = encoded(record("mine"), record("forged"))
    good, other = message(mine, seals=SEALS), message(forged)
    assert SEAL in (good.headers or {})
    moved = RawMessage(good.subject, ACK, forged, good.head)  # a seal of another message
    assert await Read(bus, SEALS).of(good, other, moved) == [("mine", ())]
    letters = await dead_letters.list_(bus)
    assert {letter.error.code for letter in letters} == {"usage_not_sealed"}
    assert await Read(bus).of(other) == [("forged", ())], "without a key all are read"
