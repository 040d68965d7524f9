"""Ends the connections of keys that count no more: revoked, expired, or shown with a secret that
was replaced.

All servers are asked for the connections of guests whenever a key is lost, and every SWEEP_S, in
case that something was missed. What a connection was opened with stands in its user's name
(`callout.py`), so that nothing need be remembered here.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import structlog
from nats.aio.msg import Msg

from hocket.admin.nats_access.callout import USER
from hocket.admin.nats_access.connection_limit import ConnectionLimit
from hocket.kit.access.key_book import KeyBook
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.access.nats_table import GUEST_ACCOUNT

SWEEP_S = 30.0
ANSWERS_S = 1.0
"""For how long the first server's answer is waited for ..."""
LOOK_GAP_S = 0.5
"""The least time between two looks."""
QUIET_S = 0.3
"""... and each further one's."""
PAGE = 1_024
MAX_PAGES = 100
PING = "$SYS.REQ.SERVER.PING.CONNZ"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection of a guest, at a server."""

    server: str
    number: int
    user: str


class Connections:
    """The connections of guests at all servers. `bus` is that of the user `access`."""

    def __init__(self, bus: Bus, book: KeyBook, limit: ConnectionLimit) -> None:
        self._bus = bus
        self._book = book
        self._limit = limit

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """End those that count no more, until the block ends."""
        task = asyncio.create_task(self._watch(), name="guests")
        try:
            yield
        finally:
            await stop_tasks([task])

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

    async def end_lost(self) -> None:
        """End the connections whose keys count no more, and count the others."""
        before, stay = self._limit.begin_look(), list[str]()
        for offset in range(0, MAX_PAGES * PAGE, PAGE):
            found, more = await self._page(offset)
            for one in found:
                if self._counts(one.user):
                    stay.append(one.user.split(":")[1])
                    continue
                log.info("connection_ended", user=one.user.rpartition(":")[0])
                with suppress(
                    TimeoutError, BusUnavailable
                ):  # it has gone by itself, or goes next time
                    await self._end(one)
            if not more:
                break
        self._limit.looked(before, stay)

    async def _end(self, one: Connected) -> None:
        subject, body = f"$SYS.REQ.SERVER.{one.server}.KICK", json.dumps({"cid": one.number})
        # a server does nothing that it need not answer
        await self._bus.request(subject, body.encode(), timeout_ms=ANSWERS_S * 1000)

    def _counts(self, user: str) -> bool:
        kind, _, rest = user.partition(":")
        key_id, _, mark = rest.partition(":")
        return kind == USER and self._book.still_counts(key_id, mark)

    async def _page(self, offset: int) -> tuple[list[Connected], bool]:
        """Return some of the connections at each server, and whether there are more."""
        asked = {"auth": True, "acc": GUEST_ACCOUNT, "limit": PAGE, "offset": offset}
        answers: list[dict[str, Any]] = []
        came = asyncio.Event()

        async def hear(message: Msg) -> None:
            answers.append(json.loads(message.data))
            came.set()

        inbox = self._bus.nc.new_inbox()
        subscription = await self._bus.subscribe(inbox, hear, confirmed=False)
        try:
            self._bus.publish_nowait(PING, json.dumps(asked).encode(), reply=inbox)
            with suppress(TimeoutError):
                while True:  # how many servers there are nobody says
                    async with asyncio.timeout(QUIET_S if answers else ANSWERS_S):
                        await came.wait()
                    came.clear()
        finally:
            await subscription.unsubscribe()
        found, more = [], False
        for answer in answers:
            data = answer.get("data") or {}
            listed = data.get("connections") or []
            found += [
                Connected(data["server_id"], one["cid"], one.get("authorized_user", ""))
                for one in listed
            ]
            more = more or len(listed) >= PAGE
        return found, more
