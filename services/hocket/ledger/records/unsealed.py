"""Handles records without the seal of a gateway of this platform, which anyone who reaches NATS can
publish.

None of them is booked. Those with a cost become dead letters (`usage_not_sealed`), because they may
come from a gateway without a key; its spending is then not lost, but booked when they are redriven.
Records of one batch share letters, so a million records do not make a million letters. Beyond
UNSEALED_BYTES they are only counted, with the cost they claim, so that a flood of them cannot push
other dead letters out of the stream. Records without a cost, and announcements, represent no
spending and are only counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import structlog
from pydantic_core import from_json

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.letter_budget import LetterBudget
from hocket.kit.nats.protocol import RawMessage
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.records.dead_records import LETTER_ERRORS
from hocket.ledger.records.record import MAX_RECORDS, SEPARATOR
from hocket.schemas import subjects
from hocket.schemas.checks.bounded import MAX_USD
from hocket.schemas.errors import ErrorClass, HocketError

LETTER_RECORDS = 512
LETTER_BYTES = 256 * 1024
"""The most bytes in one letter, except for a single larger message."""
UNSEALED_BYTES = 256 * 1024 * 1024
"""The most bytes kept at once: a quarter of the stream.
`letter_budget.py` says when there is room again."""
MAX_TENANTS = 8
"""Letters of one batch are separated by tenant, unless there are more tenants than this; then they
are attributed to none."""

log = structlog.get_logger()


class UsageNotSealed(HocketError):
    """{records} usage records over {cost_usd} USD arrived without the seal of a gateway of this
    platform and are not booked. Give every gateway the ledger's key (`HOCKET_CAPABILITY_KEY`). Genuine
    records are booked when you redrive them: `hocket dlq list --source usage`."""

    code = "usage_not_sealed"
    error_class = ErrorClass.INVALID


class Unsealed:
    """Keeps unsealed messages that state a cost, and counts the rest."""

    def __init__(self, bus: Bus, metrics: LedgerMetrics) -> None:
        self._bus = bus
        self._metrics = metrics
        self._reporting = Reporting()
        self._budget = LetterBudget(max_bytes=UNSEALED_BYTES)

    async def keep(self, messages: Sequence[RawMessage]) -> None:
        """Keep the messages of one batch that state a cost; raise one of LETTER_ERRORS."""
        self._metrics.unsealed.inc(len(messages))
        costs = {id(one): _costs(one) for one in messages}
        telling = [one for one in messages if costs[id(one)]]
        self._metrics.unkept.inc(len(messages) - len(telling))
        total_usd = unkept_usd = Decimal(0)
        for tenant, letter in _letters(telling, costs):
            cost_usd = sum((cost for one in letter for _, cost in costs[id(one)]), Decimal(0))
            total_usd += cost_usd
            size = sum(len(one.data) for one in letter)
            if not self._budget.takes(size):
                self._metrics.unkept.inc(len(letter))
                self._metrics.unkept_usd.inc(float(cost_usd))
                unkept_usd += cost_usd
                continue
            try:
                await _bury(self._bus, tenant, letter, cost_usd)
            except LETTER_ERRORS:
                self._budget.give_back(size)
                raise
            self._metrics.buried.inc()
        if count := self._reporting.due(""):
            log.error(
                "usage_not_sealed",
                subject=messages[0].subject,
                messages=len(messages),
                cost_usd=str(total_usd),
                unkept_usd=str(unkept_usd),
                batches=count,
                cure="give every gateway the ledger's key; redrive the records that are true",
            )


async def _bury(bus: Bus, tenant: str, letter: Sequence[RawMessage], cost_usd: Decimal) -> None:
    records = sum(one.data.count(SEPARATOR) + 1 for one in letter)
    await dead_letters.bury(
        bus,
        "usage",
        subject=letter[0].subject,
        payload=SEPARATOR.join(one.data for one in letter),
        headers=None,
        error=UsageNotSealed(records=records, cost_usd=str(cost_usd)).info(),
        tenant=tenant,
    )


def _costs(message: RawMessage) -> list[tuple[str, Decimal]]:
    """Return the tenant and cost of each record of a message, if one of them states a cost. A record
    that cannot be read belongs to no tenant: its cost may be booked all the same (`amended.py`)."""
    if message.subject != subjects.USAGE_SUBJECT or message.data.count(SEPARATOR) >= MAX_RECORDS:
        return []
    told = [_cost(line) for line in message.data.split(SEPARATOR)]
    return told if any(cost_usd for _, cost_usd in told) else []


def _cost(line: bytes) -> tuple[str, Decimal]:
    """Return the tenant of a record, and its cost, 0 if it states none that can be one."""
    try:
        found: Any = from_json(line, allow_inf_nan=False)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return subjects.UNATTRIBUTED, Decimal(0)
    who = found.get("attribution")
    tenant = who.get("tenant") if isinstance(who, dict) else None
    named = isinstance(tenant, str) and subjects.TOKEN.fullmatch(tenant)
    try:
        cost_usd = Decimal(str(found.get("cost_usd", 0)))
    except (ValueError, InvalidOperation):
        cost_usd = Decimal(0)
    is_cost = cost_usd.is_finite() and 0 < cost_usd <= MAX_USD
    return (str(tenant) if named else subjects.UNATTRIBUTED), cost_usd if is_cost else Decimal(0)


def _letters(
    messages: Iterable[RawMessage], costs: dict[int, list[tuple[str, Decimal]]]
) -> Iterator[tuple[str, list[RawMessage]]]:
    """Yield messages that share a letter, with its tenant if all their records belong to one."""
    of = defaultdict[str, list[RawMessage]](list)
    for one in messages:
        tenants = {tenant for tenant, _ in costs[id(one)]}
        of[tenants.pop() if len(tenants) == 1 else subjects.UNATTRIBUTED].append(one)
    if len(of) > MAX_TENANTS:
        everybody = [one for some in of.values() for one in some]
        of = defaultdict(list, {subjects.UNATTRIBUTED: everybody})
    for tenant, some in of.items():
        letter: list[RawMessage] = []
        size = records = 0
        for one in some:
            here = one.data.count(SEPARATOR) + 1
            full = size + len(one.data) > LETTER_BYTES or records + here > LETTER_RECORDS
            if letter and full:
                yield tenant, letter
                letter, size, records = [], 0, 0
            letter.append(one)
            size += len(one.data) + 1
            records += here
        yield tenant, letter
