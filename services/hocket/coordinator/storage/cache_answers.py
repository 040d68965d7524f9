"""The answers of the step cache on their way to the logs of the runs that asked.

One output may answer thousands of steps: its text is spliced into their messages, the event loop has
its turns meanwhile, and no more of them are posted while too many bytes are unacknowledged. The
tenants take turns, one answer each. The contract is `CacheAnswered` in `hocket.schemas.messages`.
"""

import asyncio
from collections import Counter, OrderedDict
from functools import partial

import structlog

from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.partition.turns import Turns
from hocket.coordinator.storage.cache_store import Answer
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.schemas import ids
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import PayloadTooLarge
from hocket.schemas.messages import CacheAnswered, encoded

MAX_UNACKNOWLEDGED_BYTES = 8 * 1024 * 1024
"""How many bytes of answers may be unacknowledged before the others wait; half for one tenant's."""
MAX_WAITING_CHARS = 32 * 1024 * 1024
"""How long the outputs that wait here may be together before `wait_for_room` waits."""
_NO_OUTPUT, _OUTPUT = b'"output":null', b'"output":'

log = structlog.get_logger(__name__)
_Who = tuple[str, str, str]


class CacheAnswers:
    """Posts answers. `partitions`: how many the installation has."""

    def __init__(self, bus: Bus, capabilities: Capabilities | None, *, partitions: int) -> None:
        self._bus = bus
        self._posting = LogPosts(bus, capabilities, partitions=partitions)
        self._partitions = partitions
        self._waiting: dict[str, OrderedDict[_Who, Answer]] = {}
        """By tenant, in the order of their turns."""
        self._texts = Counter[int]()
        """How many waiting answers have an output, by its identity: many share one."""
        self._chars = 0
        self._unacknowledged = Counter[str]()
        self._turns = Turns()
        self._some = asyncio.Event()
        self._has_room = asyncio.Event()

    def add(self, tenant: str, answer: Answer) -> None:
        """Have an answer posted, in place of one to the same question that still waits here."""
        answers = self._waiting.setdefault(tenant, OrderedDict())
        who = (answer.run_id, answer.step, answer.key)
        replaced = answers.get(who)
        answers[who] = answer
        self._keep(answer.output)
        if replaced is not None:
            self._drop(replaced.output)
        self._some.set()

    async def wait_for_room(self) -> None:
        """Wait while the outputs that wait here take too much memory."""
        while self._chars > MAX_WAITING_CHARS:
            self._has_room.clear()
            await self._has_room.wait()

    async def run(self) -> None:
        """Post what waits; never returns, cancel to stop."""
        while True:
            tenant = self._next()
            if tenant is None:
                self._some.clear()
                await self._some.wait()
                continue
            await self._bus.wait_for_capacity()
            await self._turns.take()
            begun_ms = self._turns.begin()
            self._post_first(tenant)
            self._turns.worked(begun_ms)

    def _next(self) -> str | None:
        """Return the tenant whose turn it is; None if nobody may post now."""
        if self._unacknowledged.total() >= MAX_UNACKNOWLEDGED_BYTES:
            return None
        most = MAX_UNACKNOWLEDGED_BYTES // 2
        return next((one for one in self._waiting if self._unacknowledged[one] < most), None)

    def _post_first(self, tenant: str) -> None:
        answers = self._waiting.pop(tenant)
        _, answer = answers.popitem(last=False)
        if answers:
            self._waiting[tenant] = answers  # behind the other tenants
        self._drop(answer.output)
        try:
            self._post(tenant, answer)
        except Exception as error:  # the step asks again
            log.error("cache_failed", run_id=answer.run_id, reason=reason_of(error))

    def _post(self, tenant: str, answer: Answer) -> None:
        partition = ids.partition_of(answer.run_id, self._partitions)
        body = message_of(answer)
        try:
            posted = self._posting.post(partition, CacheAnswered.kind, body)
        except PayloadTooLarge:
            # too large for a message: the asking step computes it instead
            body = message_of(Answer(key=answer.key, run_id=answer.run_id, step=answer.step))
            posted = self._posting.post(partition, CacheAnswered.kind, body)
        self._unacknowledged[tenant] += len(body)
        posted.add_done_callback(partial(self._acknowledged, tenant, len(body)))

    def _acknowledged(self, tenant: str, size_bytes: int, _: "asyncio.Future[PubAck]") -> None:
        self._unacknowledged[tenant] -= size_bytes
        if not self._unacknowledged[tenant]:
            del self._unacknowledged[tenant]
        self._some.set()

    def _keep(self, output: str | None) -> None:
        if output is not None:
            self._texts[id(output)] += 1
            if self._texts[id(output)] == 1:
                self._chars += len(output)

    def _drop(self, output: str | None) -> None:
        if output is None:
            return
        self._texts[id(output)] -= 1
        if not self._texts[id(output)]:
            del self._texts[id(output)]
            self._chars -= len(output)
            self._has_room.set()


def message_of(answer: Answer) -> bytes:
    """Return the message to the step that asked; raises ValueError for names beyond their bounds."""
    body = encoded(
        CacheAnswered(
            run_id=answer.run_id,
            step=answer.step,
            key=answer.key,
            hit=answer.output is not None,
            computed_by_run=answer.computed_by_run,
            computed_by_step=answer.computed_by_step,
            saved_usd=answer.cost_usd,
        )
    )
    if answer.output is None:
        return body
    # a name cannot contain the place of the output: its quotes are escaped
    head, tail = body.split(_NO_OUTPUT, 1)
    return b"".join((head, _OUTPUT, answer.output.encode(), tail))
