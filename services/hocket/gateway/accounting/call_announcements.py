"""Announcements let NATS know of a call before its backend is asked.

A call is announced in the stream `CALLS` without waiting for a disk: the announcement has left this
process before the backend is asked, so the calls of a killed gateway are known. A NATS server that
is killed may lose the latest announcements; once it is back, those of all calls in flight are sent
again.
"""

import asyncio
import weakref
from base64 import b64decode

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities, id_of, sealed
from hocket.schemas.messages import CallOpened, CallRefused

REFUSED_PAUSE_MS = 1_000.0
LOOK_TIMEOUT_MS = 5_000.0

log = structlog.get_logger()


class Announcement:
    """The announcement of a call."""

    def __init__(self, bus: Bus, opened: CallOpened, seals: Capabilities | None = None) -> None:
        self._bus = bus
        self._msg_id = id_of(seals, f"{opened.attribution.tenant}/{opened.call_id}:opened")
        self._payload = opened.model_dump_json().encode()
        self._headers = sealed(seals, subjects.CALL_OPENED, self._payload)
        self._told = self._tell()

    def again(self) -> None:
        """Send it again, because the server may have lost it."""
        if self._told.done():
            self._tell()

    async def sent(self) -> None:
        """Wait until the announcement has left this process."""
        if not self._bus.connected:
            await self._acknowledged()

    async def first(self) -> bool:
        """Wait until the announcement is stored; return whether it is the first under its id.

        The stream remembers ids for two minutes.
        """
        stored = await self._acknowledged()
        if stored.duplicate and stored.repeated:
            return await self._is_ours(stored.seq)
        return not stored.duplicate

    async def _is_ours(self, seq: int) -> bool:
        """Tell whether the announcement in the stream is an earlier try of this one.

        If the stream does not tell, it counts as another gateway's, so that nothing is billed twice
        under one id.
        """
        try:
            found = await self._bus.api(
                f"STREAM.MSG.GET.{subjects.CALLS}", {"seq": seq}, timeout_ms=LOOK_TIMEOUT_MS
            )
        except BusUnavailable as error:
            log.warning("announcement_not_found", msg_id=self._msg_id, reason=str(error))
            return False
        return "message" in found and b64decode(found["message"]["data"]) == self._payload

    def _tell(self) -> asyncio.Future[PubAck]:
        return self._bus.publish_durable(
            subjects.CALL_OPENED, self._payload, msg_id=self._msg_id, headers=self._headers
        )

    async def _acknowledged(self) -> PubAck:
        while True:
            try:
                return await asyncio.shield(self._told)
            except PublishRefused as error:
                log.error("announcement_refused", msg_id=self._msg_id, reason=str(error))
                await asyncio.sleep(REFUSED_PAUSE_MS / 1000)
                self._told = self._tell()


class CallAnnouncements:
    """The announcements of a gateway's calls in flight.

    `seals` let the ledger verify that they come from a gateway.
    """

    def __init__(self, bus: Bus, seals: Capabilities | None) -> None:
        self._bus = bus
        self._seals = seals
        self._announced: weakref.WeakSet[Announcement] = weakref.WeakSet()
        """Announcements whose call has not been booked and still refers to them."""
        bus.on_reconnect.append(self._announce_again)

    async def announce(self, opened: CallOpened) -> Announcement:
        """Announce a call; on return the announcement has been sent, though not necessarily stored."""
        await self._bus.wait_for_capacity()
        announcement = Announcement(self._bus, opened, self._seals)
        self._announced.add(announcement)
        await announcement.sent()
        return announcement

    def refuse(self, refused: CallRefused) -> None:
        """Report that a call ended before any backend was asked, if NATS is reachable."""
        if self._bus.connected:
            body = refused.model_dump_json().encode()
            headers = sealed(self._seals, subjects.CALL_REFUSED, body)
            self._bus.publish_nowait(subjects.CALL_REFUSED, body, headers)

    def _announce_again(self) -> None:
        for announcement in list(self._announced):
            announcement.again()
