"""Results on their way to the logs: those that end side by side go in one message.

A message costs the server and the coordinator several times what one more result inside it costs. What
ends in one turn of the event loop goes together, by partition; what ends while MAX_UNACKNOWLEDGED
messages of the partition are on their way waits for one of them, or for MAX_RESULTS, or MAX_BYTES. So a
worker with little to do sends at once, and one with much to do sends fewer and larger messages.

A message with one result has that result's id, so that the stream drops a repeat. One with several has
an id of its own: it could else be taken for the repeat of one that held other results.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import AttemptFinished, AttemptsFinished
from hocket.workers.runtime.transport.acks import Acks

if TYPE_CHECKING:
    from hocket.kit.nats.connection.durable_publisher import PubAck

MAX_UNACKNOWLEDGED = 2
"""With one, the last of a few parallel steps would often wait for the first one's acknowledgement."""
MAX_RESULTS = 32
"""Results of one message: the coordinator applies them without doing anything else between."""
MAX_BYTES = 64 * 1024


@dataclass(slots=True)
class _Lane:
    """The results for one partition that are not posted yet."""

    partition: int
    payloads: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    futures: "list[asyncio.Future[PubAck]]" = field(default_factory=list)
    size_bytes: int = 0
    unacknowledged: int = 0
    scheduled: bool = False


class Outbox:
    """See the module. `acks` are those of steps; what waits there goes along."""

    def __init__(self, bus: Bus, acks: Acks) -> None:
        self._bus = bus
        self._acks = acks
        self._lanes: dict[int, _Lane] = {}
        self._loop = asyncio.get_running_loop()

    def post(self, partition: int, payload: bytes, msg_id: str) -> "asyncio.Future[PubAck]":
        """Post an encoded AttemptFinished soon; the future ends like that of `Bus.publish_durable`."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(partition)
        if lane.size_bytes + len(payload) > MAX_BYTES:
            self._send(lane)
        future: asyncio.Future[PubAck] = self._loop.create_future()
        lane.payloads.append(payload)
        lane.ids.append(msg_id)
        lane.futures.append(future)
        lane.size_bytes += len(payload)
        if len(lane.payloads) >= MAX_RESULTS:
            self._send(lane)
        elif not lane.scheduled and lane.unacknowledged < MAX_UNACKNOWLEDGED:
            self._loop.call_soon(self._turn_ended, lane)
            lane.scheduled = True
        return future

    def _turn_ended(self, lane: _Lane) -> None:
        lane.scheduled = False
        self._send(lane)

    def _send(self, lane: _Lane) -> None:
        if not lane.payloads:
            return
        payloads, lane.payloads = lane.payloads, []
        ids, lane.ids = lane.ids, []
        futures, lane.futures = lane.futures, []
        lane.size_bytes = 0
        try:
            if len(payloads) == 1:
                subject = subjects.log(lane.partition, AttemptFinished.kind)
                posted = self._bus.publish_durable(subject, payloads[0], msg_id=ids[0])
            else:
                subject = subjects.log(lane.partition, AttemptsFinished.kind)
                posted = self._bus.publish_durable(
                    subject, b'{"results":[%b]}' % b",".join(payloads)
                )
        except (
            HocketError
        ) as error:  # the connection was closed, or the server takes less than said
            for future in futures:
                future.set_exception(error)
            return
        self._acks.send()
        lane.unacknowledged += 1
        posted.add_done_callback(lambda ack: self._acknowledged(lane, futures, ack))

    def _acknowledged(
        self,
        lane: _Lane,
        futures: "list[asyncio.Future[PubAck]]",
        posted: "asyncio.Future[PubAck]",
    ) -> None:
        lane.unacknowledged -= 1
        error = None if posted.cancelled() else posted.exception()
        for future in futures:
            if future.done():
                continue
            if posted.cancelled():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(posted.result())
        if lane.unacknowledged < MAX_UNACKNOWLEDGED:
            self._send(lane)
