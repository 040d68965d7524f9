"""Reports the cost of calls to the coordinators of the runs that the calls name, where no step
reports it.

The cost of a worker's calls is reported in the result of its step, as far as the replies tell it.
Of all other calls nothing else tells the coordinator, so the gateway posts the total cost so far
(`RunCharged`) to the log of the run:

- Calls over HTTP: the reply waits until the log has the post. Anything the caller does next comes
  after it in the log, so the run's next step and its sub-runs get what is really left of the budget.
- Calls whose caller no longer waits (stopped, out of time), requests that lost a hedge and are read
  to their end, and prefills: posted once the cost is known. Replies of such calls tell a cost of 0,
  so that each cost is either in a reply or posted, and never both.

Posts are sealed with the key of usage records; without that key nothing is posted, because
coordinators would not accept it.
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
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.messages import Attribution, CallOpened, CallRefused, RunCharged, encoded
from hocket.schemas.structs.usage import RecordedUsage

MAX_RUNS = 50_000
"""The most totals of runs that are remembered;
a run that was forgotten and returns counts as a new source."""
SOURCE_BYTES = 6
HTTP_CALL = "http:"
"""The prefix of the ids of calls over HTTP."""

log = structlog.get_logger()
_reporting = Reporting()


@dataclass(slots=True)
class _Sum:
    source: str
    total_usd: Decimal = Decimal(0)
    posts: int = 0


class RunCharges:
    """Posts the charges of runs to the logs of their partitions."""

    def __init__(self, bus: Bus, seals: Capabilities, partitions: int) -> None:
        self._bus = bus
        self._seals = seals
        self._partitions = partitions
        self._name = os.urandom(SOURCE_BYTES).hex()
        self._sums: OrderedDict[tuple[str, str, bool], _Sum] = OrderedDict()
        self._count = 0

    async def charge(self, record: RecordedUsage) -> None:
        """Post the cost of a record to its run, and return when the log has it."""
        await self._charge(record.attribution, record.cost_usd, untold=False)

    async def charge_untold(self, call_id: str, who: Attribution, cost_usd: Decimal) -> None:
        """Post the cost of a call whose caller is not told it, as `charge` does; that of a call over
        HTTP is posted when it is booked."""
        if not is_charged_when_booked(call_id):
            await self._charge(who, cost_usd, untold=True)

    def forget(self, tenant: str, run_id: str) -> None:
        """Begin new sources for a run: the former ones are of a deleted run that had its id."""
        for untold in (False, True):
            self._sums.pop((tenant, run_id, untold), None)

    async def _charge(self, who: Attribution, cost_usd: Decimal, *, untold: bool) -> None:
        """Post a cost to a run, and return when the log has it.

        It retries through outages, as long as this process lives. If the log refuses a post, its
        amount is included in the run's next one.
        """
        if who.run_id is None or not cost_usd or not ids.is_run_id(who.run_id):
            return
        try:
            posted = self._post(who, who.run_id, cost_usd, untold=untold)
            await asyncio.shield(posted)  # posted even if nobody waits for the call any more
        except (BusUnavailable, PublishRefused) as error:
            if count := _reporting.due("run_not_charged"):
                log.warning("run_not_charged", run_id=who.run_id, reason=str(error), count=count)

    def _post(
        self, who: Attribution, run_id: str, cost_usd: Decimal, *, untold: bool
    ) -> "asyncio.Future[PubAck]":
        known = self._sum((who.tenant, run_id, untold))
        known.total_usd += cost_usd
        known.posts += 1
        event = RunCharged(
            run_id=run_id,
            tenant=who.tenant,
            source=known.source,
            total_usd=known.total_usd,
            step=who.step,
            untold=untold,
        )
        body = encoded(event)
        return self._bus.publish_durable(
            subjects.log(ids.partition_of(run_id, self._partitions), event.kind),
            body,
            msg_id=self._seals.id_of(f"{run_id}:{known.source}:{known.posts}"),
            headers={SEAL: self._seals.seal(event.kind, body)},
        )

    def _sum(self, of: tuple[str, str, bool]) -> _Sum:
        known = self._sums.get(of)
        if known is None:
            self._count += 1
            known = self._sums[of] = _Sum(f"{self._name}.{self._count}")
        self._sums.move_to_end(of)
        if len(self._sums) > MAX_RUNS:
            self._sums.popitem(last=False)
        return known


def is_charged_when_booked(call_id: str) -> bool:
    """Tell whether the run of a call is charged for each of its records, whoever waits for it."""
    return call_id.startswith(HTTP_CALL)


class ChargingRecorder:
    """Records calls and charges their runs at the same time."""

    def __init__(self, books: UsageRecorder, charges: RunCharges) -> None:
        self._books = books
        self._charges = charges

    async def open(self, opened: CallOpened) -> Announced:
        """Announce that a call is about to be made."""
        return await self._books.open(opened)

    async def book(self, record: RecordedUsage) -> None:
        """Store what a call used, and charge its run; return when both are stored."""
        if is_charged_when_booked(record.call_id):
            await asyncio.gather(self._books.book(record), self._charges.charge(record))
        else:
            await self._books.book(record)

    def refuse(self, refused: CallRefused) -> None:
        """Report that a call ended before any backend was asked."""
        self._books.refuse(refused)
