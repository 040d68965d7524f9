"""Pulls from a stream of tasks, TASKS or TASK_BATCHES, as many as there is room for.

Each stream has one durable consumer, shared by all coordinators; each of these has a few long-lived
requests at the server, so that tasks arrive as soon as they are published and never faster than
they are admitted. States: open, or opening (NATS is away, the consumer is gone, or the server was
silent for SILENCE_S): then the inbox is replaced, which withdraws earlier requests; tasks sent to
the old inbox are delivered again after the consumer's ack wait.
"""

import asyncio
from collections.abc import Callable

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.pull_consumer import PullConsumer
from hocket.kit.nats.consumers.silence import is_silent_before
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawCallback, RawMessage
from hocket.kit.nats.repeated_requests import api_repeated
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError

DURABLE = subjects.INTAKE
PUBLISHED = {
    subjects.TASKS: subjects.TASK_FILTER,
    subjects.TASK_BATCHES: subjects.BATCHED_TASK_FILTER,
}
"""The streams of tasks, and the subjects published to each."""
ACK_WAIT_S = 5.0
"""A task whose coordinator died is delivered to another after this time; whoever has it reports
progress more often."""
MAX_ACK_PENDING = 10_000
"""The most tasks that all coordinators together have admitted and not yet committed."""
MAX_ASKED = 500
TOP_UP_BELOW = MAX_ASKED // 2
MAX_ASKED_BYTES = 4 * 1024 * 1024
"""The most that one request may bring, unless NATS accepts larger messages than half of it."""
EXPIRES_S = 60
HEARTBEAT_S = 1.0
SILENCE_S = 3.0 * HEARTBEAT_S
RETRY_S = 0.25
API_TIMEOUT_MS = 5_000.0
_NS = 1_000_000_000

log = structlog.get_logger(__name__)


class ConsumerRefused(HocketError):
    """NATS refused the consumer of tasks: {reason}. Check that the streams exist: `hocket doctor`."""

    code = "consumer_refused"


class TaskPull:
    """Pulls tasks from a stream while there is room for them. `deliver` gets each task; `room`
    returns how many more may arrive now."""

    def __init__(
        self,
        bus: Bus,
        *,
        deliver: RawCallback,
        room: Callable[[], int],
        stream: str = subjects.TASKS,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._deliver = deliver
        self._room = room
        self._asked = 0
        self._pull = PullConsumer(
            bus,
            stream,
            DURABLE,
            deliver=self._delivered,
            ended=self._ended,
            refused=self._refused,
        )
        self._changed = asyncio.Event()
        self._broken = asyncio.Event()

    async def run(self) -> None:
        """Request tasks; never returns, cancel to stop, which withdraws the requests."""
        self._bus.on_reconnect.append(self._break)
        stopped: BaseException | None = None
        try:
            while True:
                self._broken.clear()
                if not await self._has_opened():
                    await asyncio.sleep(RETRY_S)
                    continue
                await self._ask_until_broken()
        except BaseException as error:
            stopped = error
        self._bus.on_reconnect.remove(self._break)
        await self._close()
        if stopped is not None:
            raise stopped

    def more(self) -> None:
        """Report that there is room again."""
        self._changed.set()

    def _break(self) -> None:
        self._broken.set()
        self._changed.set()

    async def _has_opened(self) -> bool:
        try:
            await self._open()
        except (BusUnavailable, ConsumerRefused) as error:
            log.warning("tasks_not_asked", reason=str(error))
            return False
        return True

    async def _open(self) -> None:
        await self._close()
        await ensure_consumer(self._bus, self._stream)
        await self._pull.open(confirmed=False)
        self._asked = 0

    async def _close(self) -> None:
        try:
            await self._pull.unsubscribe()
        except Exception as error:  # the connection is gone, and the subscription with it
            log.debug("tasks_not_unsubscribed", error=str(error))

    async def _ask_until_broken(self) -> None:
        while not self._broken.is_set():
            self._changed.clear()
            self._ask()
            if await is_silent_before(self._changed, SILENCE_S, self._silent_s):
                log.warning("tasks_silent", silent_s=round(self._pull.silent_s, 1))
                return

    def _silent_s(self) -> float:
        """Return for how long the server has owed an answer (s)."""
        return self._pull.silent_s if self._asked and self._bus.connected else 0.0

    def _ask(self) -> None:
        wanted = min(self._room(), MAX_ASKED) - self._asked
        if wanted <= 0 or self._asked > TOP_UP_BELOW:
            return
        if not self._asked:
            self._pull.count_silence_from_now()
        self._asked += wanted
        max_bytes = max(MAX_ASKED_BYTES, 2 * self._bus.nc.max_payload)
        self._pull.ask(wanted, expires_s=EXPIRES_S, heartbeat_s=HEARTBEAT_S, max_bytes=max_bytes)

    def _delivered(self, message: RawMessage) -> None:
        self._asked = max(self._asked - 1, 0)
        if self._asked <= TOP_UP_BELOW:
            self._changed.set()
        self._deliver(message)

    def _ended(self, missing: int) -> None:
        self._asked = max(self._asked - missing, 0)
        self._changed.set()

    def _refused(self, status: str | None, reason: str | None) -> None:
        log.warning("tasks_refused", status=status, reason=reason)
        self._break()


async def ensure_consumer(bus: Bus, stream: str) -> None:
    """Create or correct the durable consumer of a stream of tasks."""
    name, published = f"{stream}.{DURABLE}", PUBLISHED[stream]
    found = await api_repeated(bus, f"CONSUMER.INFO.{name}", {}, timeout_ms=API_TIMEOUT_MS)
    if found.get("config", {}).get("deliver_subject"):  # from a release to which tasks were pushed
        await bus.api(f"CONSUMER.DELETE.{name}", {}, timeout_ms=API_TIMEOUT_MS)
    config = {
        "name": DURABLE,
        "durable_name": DURABLE,
        "ack_policy": "explicit",
        "ack_wait": int(ACK_WAIT_S * _NS),
        "max_ack_pending": MAX_ACK_PENDING,
        "max_deliver": -1,
        "filter_subject": published,
    }
    if all(found.get("config", {}).get(key) == value for key, value in config.items()):
        return
    request = {"stream_name": stream, "config": config, "action": ""}
    subject = f"CONSUMER.CREATE.{name}.{published}"
    answer = await api_repeated(bus, subject, request, timeout_ms=API_TIMEOUT_MS)
    if "error" in answer:
        raise ConsumerRefused(reason=answer["error"].get("description", ""))
