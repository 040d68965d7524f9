"""Posts results to the logs, several per message if they finish at about the same time.

A message costs the server and the coordinator several times as much as one more result in it. Results of
one partition that finish in the same turn of the event loop are sent together. While MAX_UNACKNOWLEDGED
messages of the partition are in flight, further results wait for one of them, or for MAX_RESULTS or
MAX_BYTES. So a worker with little to do sends at once, and a busy one sends fewer, larger messages.

A message with one result has that result's id, so that the stream drops a repeat. A message with several
has an id of its own, because otherwise it could be taken for a repeat of one with other results.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hocket.kit.nats.bus import Bus
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import AttemptFinished, AttemptsFinished
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.transport.acks import Acks

if TYPE_CHECKING:
    from hocket.kit.nats.connection.post_answers import PubAck

MAX_UNACKNOWLEDGED = 2
"""With one, the last of a few parallel steps would often wait for the first one's acknowledgement."""
MAX_RESULTS = 32
"""The most results in one message: the coordinator applies them without doing anything in between."""
MAX_BYTES = 64 * 1024


Posted = Callable[[Attempt, str | None], None]
"""Called when the log has an attempt's result, or with the reason why it does not."""


@dataclass(slots=True)
class _Lane:
    """The results for one partition that have not been posted yet."""

    partition: int
    payloads: list[bytes] = field(default_factory=list)
    ends: list[tuple[Attempt, Posted]] = field(default_factory=list)
    size_bytes: int = 0
    unacknowledged: int = 0
    scheduled: bool = False


class Outbox:
    """Sends results, and calls back once they are stored. Waiting acknowledgements in `acks` are sent
    along with them."""

    def __init__(self, bus: Bus, acks: Acks) -> None:
        self._bus = bus
        self._acks = acks
        self._lanes: dict[int, _Lane] = {}
        self._loop = asyncio.get_running_loop()

    def post(self, payload: bytes, attempt: Attempt, posted: Posted) -> None:
        """Post the encoded AttemptFinished of an attempt soon."""
        partition = attempt.step.partition
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(partition)
        if lane.size_bytes + len(payload) > MAX_BYTES:
            self._send(lane)
        lane.payloads.append(payload)
        lane.ends.append((attempt, posted))
        lane.size_bytes += len(payload)
        if len(lane.payloads) >= MAX_RESULTS:
            self._send(lane)
        elif not lane.scheduled and lane.unacknowledged < MAX_UNACKNOWLEDGED:
            self._loop.call_soon(self._turn_ended, lane)
            lane.scheduled = True

    def _turn_ended(self, lane: _Lane) -> None:
        lane.scheduled = False
        self._send(lane)

    def _send(self, lane: _Lane) -> None:
        if not lane.payloads:
            return
        payloads, lane.payloads = lane.payloads, []
        ends, lane.ends = lane.ends, []
        lane.size_bytes = 0
        to = self._bus.identity.result_subject
        try:
            if len(payloads) == 1:
                subject = to(lane.partition, AttemptFinished.kind)
                msg_id = ends[0][0].posted.msg_id
                posted = self._bus.publish_durable(subject, payloads[0], msg_id=msg_id)
            else:
                subject = to(lane.partition, AttemptsFinished.kind)
                posted = self._bus.publish_durable(
                    subject, b'{"results":[%b]}' % b",".join(payloads)
                )
        except (
            HocketError
        ) as error:  # the connection closed, or the server accepts less than it said
            _tell(ends, str(error))
            return
        self._acks.send()
        lane.unacknowledged += 1
        posted.add_done_callback(lambda ack: self._acknowledged(lane, ends, ack))

    def _acknowledged(
        self,
        lane: _Lane,
        ends: list[tuple[Attempt, Posted]],
        ack: "asyncio.Future[PubAck]",
    ) -> None:
        lane.unacknowledged -= 1
        error = None if ack.cancelled() else ack.exception()
        _tell(ends, "it was cancelled" if ack.cancelled() else str(error) if error else None)
        if lane.unacknowledged < MAX_UNACKNOWLEDGED:
            self._send(lane)


def _tell(ends: list[tuple[Attempt, Posted]], failure: str | None) -> None:
    for attempt, posted in ends:
        posted(attempt, failure)
