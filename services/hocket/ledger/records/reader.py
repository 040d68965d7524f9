"""Reads messages into records.

A record that cannot be read becomes a dead letter on its own, and its cost is booked without the
faulty parts (`amended.py`). With a key, a message that no gateway sealed is not read at all
(`unsealed.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.records.amended import amended
from hocket.ledger.records.dead_records import DeadRecords, sent_ms
from hocket.ledger.records.record import (
    MAX_RECORDS,
    SEPARATOR,
    Record,
    UsageMalformed,
    booked,
    record_of,
)
from hocket.ledger.records.unsealed import Unsealed
from hocket.schemas.capabilities import SEAL, Capabilities


@dataclass(frozen=True, slots=True)
class RecordDelivery:
    """A record, its encoded form, and the message that holds it."""

    message: RawMessage
    line: bytes
    record: Record
    buried: bool = False
    """Whether it is already a dead letter, and has been repaired as far as possible."""


class RecordReader:
    """Reads the messages of one stream."""

    def __init__(
        self, bus: Bus, metrics: LedgerMetrics, letters: DeadRecords, seals: Capabilities | None
    ) -> None:
        self._letters = letters
        self._seals = seals
        self._unsealed = Unsealed(bus, metrics)

    async def records_of(self, batch: Sequence[RawMessage]) -> Sequence[RecordDelivery]:
        """Return the records of messages that come from a gateway; other messages are kept aside."""
        entries: list[RecordDelivery] = []
        unsealed: list[RawMessage] = []
        for message in batch:
            if self._is_sealed(message):
                entries += await self._read(message)
            else:
                unsealed.append(message)
        if unsealed:
            await self._unsealed.keep(unsealed)
        return entries

    def _is_sealed(self, message: RawMessage) -> bool:
        """Tell whether a message comes from a gateway, if seals are required."""
        if self._seals is None:
            return True
        seal = (message.headers or {}).get(SEAL, "")
        return self._seals.is_sealed(seal, message.subject, message.data)

    async def _read(self, message: RawMessage) -> Sequence[RecordDelivery]:
        """Return the records of a message; an invalid record becomes a dead letter and is booked as
        far as possible."""
        if message.data.count(SEPARATOR) >= MAX_RECORDS:
            reason = f"it has more than {MAX_RECORDS} records"
            await self._letters.bury(
                message, message.data, UsageMalformed(field="body", reason=reason)
            )
            return ()
        entries: list[RecordDelivery] = []
        for line in message.data.split(SEPARATOR):
            try:
                entries.append(RecordDelivery(message, line, record_of(line)))
            except UsageMalformed as error:
                await self._letters.bury(message, line, error)
                if (found := amended(line, sent_ms(message))) is not None:
                    entries.append(RecordDelivery(message, line, booked(*found)))
        return entries
