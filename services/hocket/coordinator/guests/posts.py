"""The results and dead letters that workers with a key post, each key at a rate of its own.

Results go to the log of their run's partition, which is derived from the run and not from what the
guest says. A letter belongs to the tenant that its message names.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hocket.coordinator.guests.relay import Post, Relay, TooEarly
from hocket.coordinator.partition.events.malformed_results import read_leniently
from hocket.kit.access.rate_limits import RateLimits, TooManyRequests
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.letter_budget import LetterBudget
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import ids, subjects
from hocket.schemas.messages import AttemptFinished, AttemptsFinished, read_log

RESULTS_PER_S = 2_000.0
"""How many results of one key a coordinator hands on per second."""
BYTES_PER_RESULT = 16 * 1024
"""A larger message counts as several."""
UNREADABLE_BYTES_PER_S = 1024 * 1024
"""How much that cannot be read a coordinator hands on per second and key: to find out whose it is
takes long."""
MAX_LENIENT_BYTES = 8 * 1024
"""Whose a larger message is that cannot be read, only its id says."""
KEY_LETTER_BYTES = 8 * 1024 * 1024
"""How many bytes of one key's dead letters are handed on at once; after that
`kit/nats/letter_budget.py` applies."""
MAX_KEYS = 10_000
"""How many keys have their letters counted; beyond that, the one whose last letter is oldest is
forgotten."""
_MSG_ID = "Nats-Msg-Id"
_BATCH = re.compile(rb'\s*\{\s*"results"\s*:')
"""The beginning of a message with several results. A step may be called `results`, too."""
_SERVERS = "nats-"


class GuestPosts:
    """Hands on what guests post, inside `open`. `partitions`: how many the installation has."""

    def __init__(
        self, bus: Bus, *, partitions: int, now_s: Callable[[], float] = time.time
    ) -> None:
        self._partitions = partitions
        self._now_s = now_s
        self._rates = RateLimits()
        self._letters: OrderedDict[str, LetterBudget] = OrderedDict()
        self._relays = (
            Relay(bus, subjects.GUEST_RESULTS, self.result),
            Relay(bus, subjects.GUEST_LETTERS, self.letter),
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hand on posts until the block ends."""
        tasks = [asyncio.create_task(relay.run(), name="guests' posts") for relay in self._relays]
        try:
            yield
        finally:
            await stop_tasks(tasks)

    def result(self, key: str, message: RawMessage) -> Post:
        """Return what to post to the log for a message with results; raise TooEarly or ValueError."""
        count = 1 + len(message.data) // BYTES_PER_RESULT
        self._take(key, count)
        is_batch = _BATCH.match(message.data) is not None
        kind = AttemptsFinished.kind if is_batch else AttemptFinished.kind
        headers = message.headers or {}
        msg_id = headers.get(_MSG_ID)
        try:
            events = _results(kind, message.data)
        except ValueError:
            self._rates.owe(key, len(message.data) / UNREADABLE_BYTES_PER_S)
            events = _leniently(kind, message.data, msg_id or "")
            if not events:
                raise
        found = {ids.partition_of(event.run_id, self._partitions) for event in events}
        if len(found) != 1:
            raise ValueError("the results are not those of one partition")
        if len(events) > count:
            self._rates.owe(key, (len(events) - count) / RESULTS_PER_S)
        return Post(subjects.log(found.pop(), kind), message.data, msg_id)

    def letter(self, key: str, message: RawMessage) -> Post:
        """Return what to post for a dead letter; raise TooEarly."""
        budget = self._letters.get(key)
        if budget is None:
            budget = self._letters[key] = LetterBudget(max_bytes=KEY_LETTER_BYTES)
            if len(self._letters) > MAX_KEYS:
                self._letters.popitem(last=False)
        self._letters.move_to_end(key)
        if not budget.takes(len(message.data) + len(message.head)):
            raise TooEarly
        headers = message.headers or {}
        kept = {n: v for n, v in headers.items() if not n.lower().startswith(_SERVERS)}
        subject = dead_letters.subject_of(dead_letters.STEP, "", message.data)
        return Post(subject, message.data, headers.get(_MSG_ID), kept)

    def _take(self, key: str, count: int) -> None:
        try:
            self._rates.take(key, RESULTS_PER_S / count, self._now_s())
        except TooManyRequests:
            raise TooEarly from None


def _results(kind: str, body: bytes) -> tuple[AttemptFinished, ...]:
    return tuple(one for one in read_log(kind, body) if isinstance(one, AttemptFinished))


def _leniently(kind: str, body: bytes, msg_id: str) -> tuple[AttemptFinished, ...]:
    """Return whose the results of a malformed message are; they fail where the log is read."""
    return read_leniently(kind, body if len(body) <= MAX_LENIENT_BYTES else b"", msg_id)
