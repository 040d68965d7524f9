"""Closes the connections of keys that are no longer valid (revoked, expired, or presented with a secret
that was replaced), and of those who send too much.

All servers are asked for the connections of guests whenever a key becomes invalid, and every SWEEP_S in
case something was missed; message rates are checked every RATES_S. The credentials that a connection was
opened with are part of its user name (`callout.py`), so nothing has to be remembered here.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

import structlog

from hocket.admin.nats_access.callout import USER
from hocket.admin.nats_access.connection_limit import ConnectionLimit
from hocket.admin.nats_access.message_rates import Heard, MessageRates
from hocket.admin.nats_access.server_answers import answers_of_all
from hocket.kit.access.key_book import KeyBook
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.access.nats_table import GUEST_ACCOUNT

SWEEP_S = 30.0
RATES_S = 1.0
ANSWERS_S = 1.0
"""How long to wait for the first server's answer ..."""
LOOK_GAP_S = 0.5
"""The minimum time between two looks."""
QUIET_S = 0.3
"""... and each further one's."""
PAGE = 1_024
MAX_PAGES = 100
PING = "$SYS.REQ.SERVER.PING.CONNZ"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Connected:
    """A guest's connection at a server."""

    server: str
    number: int
    user: str
    sent: int
    age_s: float
    """How long it has been open, by the server's clock."""

    @property
    def key_id(self) -> str:
        """The id of the key with which it was opened."""
        return self.user.split(":")[1] if self.user.count(":") > 1 else ""


class Connections:
    """The connections of guests at all servers. `bus` is connected as the user `access`."""

    def __init__(
        self, bus: Bus, book: KeyBook, limit: ConnectionLimit, rates: MessageRates
    ) -> None:
        self._bus = bus
        self._book = book
        self._limit = limit
        self._rates = rates

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Keep closing connections with invalid keys until the block ends."""
        tasks = [
            asyncio.create_task(self._watch(), name="guests"),
            asyncio.create_task(self._watch_rates(), name="guests' rates"),
        ]
        try:
            yield
        finally:
            await stop_tasks(tasks)

    async def _watch(self) -> None:
        while True:
            self._book.lost.clear()
            try:
                await self.end_lost()
            except Exception as error:  # whatever it is, it is done again
                log.warning("guests_not_looked_at", reason=repr(error))
            await asyncio.sleep(LOOK_GAP_S)
            waits = {
                asyncio.create_task(one.wait()) for one in (self._book.lost, self._limit.reached)
            }
            try:
                await asyncio.wait(waits, timeout=SWEEP_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await stop_tasks(waits)

    async def _watch_rates(self) -> None:
        while True:
            try:
                await self.end_loud()
            except Exception as error:  # whatever it is, it is done again
                log.warning("guests_not_looked_at", reason=repr(error))
            await asyncio.sleep(RATES_S)

    async def end_loud(self) -> None:
        """Close the connections of those who send too many messages."""
        every = {f"{one.server} {one.number}": one async for one in self._every()}
        heard = [Heard(name, one.key_id, one.sent, one.age_s) for name, one in every.items()]
        for name in sorted(self._rates.looked(heard)):
            log.warning("connection_ended_too_many_messages", key=every[name].key_id)
            await self._end(every[name])

    async def end_lost(self) -> None:
        """Close the connections whose keys are no longer valid, and count the others."""
        before, stay = self._limit.begin_look(), list[str]()
        async for one in self._every():
            if self._counts(one.user):
                stay.append(one.key_id)
                continue
            log.info("connection_ended", user=one.user.rpartition(":")[0])
            await self._end(one)
        self._limit.looked(before, stay)

    async def _every(self) -> AsyncIterator[Connected]:
        for offset in range(0, MAX_PAGES * PAGE, PAGE):
            found, more = await self._page(offset)
            for one in found:
                yield one
            if not more:
                return

    async def _end(self, one: Connected) -> None:
        subject, body = f"$SYS.REQ.SERVER.{one.server}.KICK", json.dumps({"cid": one.number})
        with suppress(TimeoutError, BusUnavailable):  # it closed by itself, or is closed next time
            # a request, because a server ignores a kick that has no reply subject
            await self._bus.request(subject, body.encode(), timeout_ms=ANSWERS_S * 1000)

    def _counts(self, user: str) -> bool:
        kind, _, rest = user.partition(":")
        key_id, _, mark = rest.partition(":")
        return kind == USER and self._book.still_counts(key_id, mark)

    async def _page(self, offset: int) -> tuple[list[Connected], bool]:
        """Return a page of the connections at each server, and whether there are more."""
        asked = {"auth": True, "acc": GUEST_ACCOUNT, "limit": PAGE, "offset": offset}
        answers = await answers_of_all(self._bus, PING, asked, first_s=ANSWERS_S, quiet_s=QUIET_S)
        found, more = [], False
        for answer in answers:
            data = answer.get("data") or {}
            listed = data.get("connections") or []
            found += [
                Connected(
                    data["server_id"],
                    one["cid"],
                    one.get("authorized_user", ""),
                    one.get("in_msgs", 0),
                    _age_s(one.get("start"), data.get("now")),
                )
                for one in listed
            ]
            more = more or len(listed) >= PAGE
        return found, more


def _age_s(start: object, now: object) -> float:
    """Return the seconds between two times of a server; 0 if they cannot be read."""
    try:
        begun, told = (datetime.fromisoformat(str(time)) for time in (start, now))
        return max(0.0, (told - begun).total_seconds())
    except (ValueError, TypeError):
        return 0.0
