"""Batches of messages from a stream of records, pulled from a durable consumer that processes share.

One request at a time is open at the server, for as much as a batch may hold. Messages that arrive while
a batch is written wait here for the next one, so that nothing sent for a request is lost. States: closed
(the next batch opens it), or open. After NATS was away, and when the server has fallen silent, the inbox
is replaced; messages sent to the old one are redelivered after the consumer's ack wait.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime

import structlog
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.pull_consumer import PullConsumer
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage

DURABLE = "ledger"
"""The consumer of the ledgers."""
MAX_BATCH = 500
"""Messages of one batch."""
MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Bytes that one request may bring."""
MAX_ACK_PENDING = 4 * MAX_BATCH
FOLLOWS_MS = 10.0
"""A batch is closed when nothing has arrived for this long."""
EXPIRES_S = 30.0
HEARTBEAT_S = 2.0
SILENCE_S = 3 * HEARTBEAT_S

log = structlog.get_logger()


class RecordPull:
    """Pulls the messages of one subject of a stream, with the named durable consumer. A new consumer
    starts at the first message, with `only_new` at messages published after it was made, with `since` at
    that time."""

    def __init__(
        self,
        bus: Bus,
        stream: str,
        subject: str,
        *,
        ack_wait_ms: float,
        only_new: bool = False,
        since: datetime | None = None,
        durable: str = DURABLE,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._config = ConsumerConfig(
            durable_name=durable,
            filter_subject=subject,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ack_wait_ms / 1000,
            max_ack_pending=MAX_ACK_PENDING,
            deliver_policy=DeliverPolicy.NEW if only_new else DeliverPolicy.ALL,
        )
        if since is not None:
            self._config.deliver_policy = DeliverPolicy.BY_START_TIME
            self._config.opt_start_time = since
        self._pull = PullConsumer(
            bus,
            stream,
            durable,
            deliver=self._delivered,
            ended=self._ended,
            refused=self._refused,
        )
        self._arrived: deque[RawMessage] = deque()
        self._asked = 0
        self._losses = 0
        self._broken = True
        self._changed = asyncio.Event()

    async def batch(self, wait_ms: float, gather_ms: float) -> Sequence[RawMessage]:
        """Return the messages that wait in the stream: the first within `wait_ms`, those that arrive
        within `gather_ms` of it, and those that follow within FOLLOWS_MS of each other. Returns an empty
        sequence if none arrives. Raises BusUnavailable."""
        await self._ensure_open()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not self._arrived:
                    if self._broken:
                        raise BusUnavailable(reason=f"{self._stream}: a request was refused")
                    self._ask()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return ()
        await asyncio.sleep(gather_ms / 1000)  # otherwise each message would wake us
        before = 0
        while self._asked and before < len(self._arrived):
            before = len(self._arrived)
            await asyncio.sleep(FOLLOWS_MS / 1000)
        batch = list(self._arrived)
        self._arrived.clear()
        return batch

    async def close(self) -> None:
        """Withdraw the request: the server would send messages that nobody reads."""
        self._arrived.clear()
        self._asked, self._broken = 0, True
        try:
            await self._pull.unsubscribe()
        except NatsError as error:  # the connection is gone, and with it the subscription
            log.info("records_not_unsubscribed", stream=self._stream, reason=repr(error))

    async def _ensure_open(self) -> None:
        silent = self._asked > 0 and self._pull.silent_s > SILENCE_S
        if not self._broken and not silent and self._losses == self._bus.losses:
            return
        await self.close()
        self._losses = self._bus.losses
        try:
            await self._make()
        except (NatsError, JetStreamError, OSError, TimeoutError) as error:
            raise BusUnavailable(reason=f"{self._stream}: {error!r}") from error
        await self._pull.open(confirmed=False, losses=self._losses)
        self._broken = False

    async def _make(self) -> None:
        if self._config.opt_start_time is not None:
            try:
                await self._bus.js.consumer_info(self._stream, str(self._config.durable_name))
            except NotFoundError:
                pass
            else:
                return
        await self._bus.js.add_consumer(self._stream, self._config)

    def _ask(self) -> None:
        if not self._asked:
            self._pull.count_silence_from_now()
            self._asked = MAX_BATCH
            self._pull.ask(
                MAX_BATCH,
                expires_s=EXPIRES_S,
                heartbeat_s=HEARTBEAT_S,
                max_bytes=MAX_BATCH_BYTES,
            )

    def _delivered(self, message: RawMessage) -> None:
        self._asked = max(self._asked - 1, 0)
        self._arrived.append(message)
        self._changed.set()

    def _ended(self, _missing: int) -> None:
        self._asked = 0
        self._changed.set()

    def _refused(self, status: str | None, reason: str | None) -> None:
        log.warning("records_refused", stream=self._stream, status=status, reason=reason)
        self._asked, self._broken = 0, True
        self._changed.set()
