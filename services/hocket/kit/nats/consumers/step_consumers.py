"""The durable pull consumers of STEPS, one per pool (a node type, or a queue of it) and lane.

All workers share them. A client that may create consumers could have the server deliver messages to a
subject of its choice, on which it may not publish itself. So coordinators create them for the workers
that ask (`StepConsumersDoor`).
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.schemas.access.nats_table import CONSUMERS_ASKED

ACK_WAIT_S = 10.0
"""A step whose worker is silent for this long is redelivered to another one."""
MIN_ACK_WAIT_S, MAX_ACK_WAIT_S = 1.0, 600.0
MAX_ACK_PENDING = 65_536
"""Steps in the hands of all workers together, per node type and lane."""
MAX_WAITING = 8_192
"""Pull requests that may be open at the server, per node type and lane."""
MAX_ANSWERING = 64
"""Requests for consumers that are handled at the same time; workers repeat the others."""
ASK_TIMEOUT_MS = 5_000.0
ASK_PAUSE_S = 0.1
"""Pause before the request is repeated, if no coordinator made the consumers."""
QUEUE = "coordinator"
_DONE = b"+OK"

log = structlog.get_logger(__name__)


async def make_consumers(bus: Bus, token: str, ack_wait_s: float) -> None:
    """Create or update the consumers of a pool; `token` is the pool's name as it is written in
    subjects."""
    await asyncio.gather(
        *(
            bus.js.add_consumer(subjects.STEPS, _config(token, lane, ack_wait_s))
            for lane in subjects.LANES
        )
    )


async def ask_for_consumers(bus: Bus, token: str, ack_wait_s: float) -> None:
    """Have a coordinator make the consumers of a pool, and wait until one has. Cancel to give up."""
    subject = f"{CONSUMERS_ASKED}.{token}"
    body = json.dumps({"ack_wait_s": ack_wait_s}).encode()
    said = False
    while True:
        try:
            answer = await bus.request(subject, body, timeout_ms=ASK_TIMEOUT_MS)
        except BusUnavailable as error:
            reason = str(error)
        else:
            if answer.data == _DONE:
                return
            reason = answer.data.decode("utf-8", "replace")[:200]
        if not said:
            cure = "A coordinator has to run, and a key has to name the pool: `--pool`."
            log.warning("step_consumers_awaited", pool=token, reason=reason, cure=cure)
            said = True
        await asyncio.sleep(ASK_PAUSE_S)


class StepConsumersDoor:
    """Makes the consumers of pools for the workers that ask, inside `open`. The NATS server lets each
    worker ask only for its own pools."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._answering: set[asyncio.Task[None]] = set()
        self._reporting = Reporting()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer requests until the block ends."""
        asked = await self._bus.subscribe(f"{CONSUMERS_ASKED}.*", self._on_asked, queue=QUEUE)
        try:
            yield
        finally:
            await asked.unsubscribe()
            await stop_tasks(self._answering)

    async def _on_asked(self, message: Msg) -> None:
        if len(self._answering) < MAX_ANSWERING:
            task = asyncio.create_task(self._answer(message), name="step consumers asked")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        try:
            await make_consumers(self._bus, token, _ack_wait_s(message.data))
            answer = _DONE
        except (NatsError, JetStreamError, OSError, TimeoutError, ValueError) as error:
            answer = f"-ERR {error}".encode()[:300]
            if count := self._reporting.due("refused"):
                log.warning("step_consumers_not_made", pool=token, reason=str(error), count=count)
        self._bus.respond(message.reply, answer)


def _ack_wait_s(body: bytes) -> float:
    try:
        asked: Any = json.loads(body or b"{}")
    except RecursionError:
        raise ValueError("it nests too deep") from None
    wanted = asked.get("ack_wait_s", ACK_WAIT_S) if isinstance(asked, dict) else None
    if not isinstance(wanted, int | float) or not MIN_ACK_WAIT_S <= wanted <= MAX_ACK_WAIT_S:
        raise ValueError(f"ack_wait_s is not {MIN_ACK_WAIT_S:g} to {MAX_ACK_WAIT_S:g} seconds")
    return float(wanted)


def _config(token: str, lane: str, ack_wait_s: float) -> ConsumerConfig:
    name = subjects.step_consumer(token, lane)
    return ConsumerConfig(
        name=name,
        durable_name=name,
        filter_subject=f"hocket.step.{token}.{lane}",
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s,
        max_deliver=-1,  # workers count: the server would report what it gave up only on a subject
        max_ack_pending=MAX_ACK_PENDING,
        max_waiting=MAX_WAITING,
    )
