"""What calls of the HTTP door cost the runs that they name, for the coordinators of these runs.

What a worker's calls cost, the result of its step tells. Nobody tells a coordinator of calls that came
by HTTP: so their gateway posts what they cost by now (`RunCharged`) to the log of the run, and the
answer waits until the log has it. Whatever the caller does next comes behind it: the run's next step
and its sub-runs get what is really left of the budget.

What is posted is sealed by the key of usage records; without one nothing is posted, because coordinators
would not believe it.
"""

import asyncio
import os
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal

import structlog

from hocket.gateway.calls.attempts.hedged_request import Announced
from hocket.gateway.calls.call import UsageRecorder
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.durable_publisher import PubAck
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.messages import CallOpened, CallRefused, RunCharged, UsageRecord, encoded

MAX_RUNS = 50_000
"""Runs whose sums are remembered; one that is forgotten and comes again is another source's."""
SOURCE_BYTES = 6
HTTP_CALL = "http:"
"""What the ids of calls of the HTTP door begin with."""

log = structlog.get_logger()
_reporting = Reporting()


@dataclass(slots=True)
class _Sum:
    source: str
    total_usd: Decimal = Decimal(0)
    posts: int = 0


class RunCharges:
    """Posts what runs are charged, in so many partitions."""

    def __init__(self, bus: Bus, seals: Capabilities, partitions: int) -> None:
        self._bus = bus
        self._seals = seals
        self._partitions = partitions
        self._name = os.urandom(SOURCE_BYTES).hex()
        self._sums: OrderedDict[tuple[str, str], _Sum] = OrderedDict()
        self._count = 0

    async def charge(self, record: UsageRecord) -> None:
        """Post what a record costs its run, and return when the log has it: through outages, for as long
        as we live. What the log refuses comes with the run's next call."""
        who = record.attribution
        if who.run_id is None or not record.cost_usd or not ids.is_run_id(who.run_id):
            return
        try:
            posted = self._post(who.tenant, who.run_id, record.cost_usd)
            await asyncio.shield(
                posted
            )  # it is posted also where nobody waits for the call any more
        except (BusUnavailable, PublishRefused) as error:
            if count := _reporting.due("run_not_charged"):
                log.warning("run_not_charged", run_id=who.run_id, reason=str(error), count=count)

    def _post(self, tenant: str, run_id: str, cost_usd: Decimal) -> "asyncio.Future[PubAck]":
        known = self._sum(tenant, run_id)
        known.total_usd += cost_usd
        known.posts += 1
        event = RunCharged(
            run_id=run_id, tenant=tenant, source=known.source, total_usd=known.total_usd
        )
        body = encoded(event)
        return self._bus.publish_durable(
            subjects.log(ids.partition_of(run_id, self._partitions), event.kind),
            body,
            msg_id=self._seals.id_of(f"{run_id}:{known.source}:{known.posts}"),
            headers={SEAL: self._seals.seal(event.kind, body)},
        )

    def _sum(self, tenant: str, run_id: str) -> _Sum:
        known = self._sums.get((tenant, run_id))
        if known is None:
            self._count += 1
            known = self._sums[tenant, run_id] = _Sum(f"{self._name}.{self._count}")
        self._sums.move_to_end((tenant, run_id))
        if len(self._sums) > MAX_RUNS:
            self._sums.popitem(last=False)
        return known


class ChargingRecorder:
    """Books calls, and charges their runs at the same time."""

    def __init__(self, books: UsageRecorder, charges: RunCharges) -> None:
        self._books = books
        self._charges = charges

    async def open(self, opened: CallOpened) -> Announced:
        """Say that a call is about to be made."""
        return await self._books.open(opened)

    async def book(self, record: UsageRecord) -> None:
        """Store what a call used, and charge its run; returns when both are stored."""
        if record.call_id.startswith(HTTP_CALL):
            await asyncio.gather(self._books.book(record), self._charges.charge(record))
        else:
            await self._books.book(record)

    def refuse(self, refused: CallRefused) -> None:
        """Tell that nobody was asked for a call."""
        self._books.refuse(refused)
