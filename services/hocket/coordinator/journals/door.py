"""Reads and writes journals of steps for the workers that have the steps.

A request carries the capability of an attempt, so that nobody can read or write the journal of a
step that was not handed to them. Once a later attempt has opened the journal, an earlier one loses
it. Any coordinator answers; if one cannot answer at once, the worker asks again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import structlog

from hocket.coordinator.journals.former_runs import FormerRuns
from hocket.coordinator.journals.room import JournalRoom
from hocket.coordinator.journals.stored_journals import (
    NO_JOURNAL,
    JournalEnd,
    Overtaken,
    StoredJournals,
    digest_of,
)
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import journals, subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.journals import JournalKept, JournalRefusal
from hocket.schemas.messages import encoded
from hocket.schemas.structs.fields import NOT_READ
from hocket.schemas.structs.journals import JournalQuestion, KeptMessage, KeptPage, read_question

MAX_ANSWERING = 256
"""How many requests a coordinator answers at a time; others have to be made again."""
MAX_ANSWERING_BYTES = 32 * 1024 * 1024
"""The limit for the size of these requests together."""
POOL_SHARE = 0.5
"""The share of both limits for the workers of one pool."""
MAX_REASON_CHARS = 300
QUEUE = "coordinator"

log = structlog.get_logger(__name__)


class Refused(Exception):
    """The request is not answered."""

    def __init__(self, refusal: JournalRefusal, reason: str) -> None:
        super().__init__(reason)
        self.refusal: JournalRefusal = refusal


class JournalDoor:
    """Answers workers that read or write journals, inside `open`. Without `former_runs`, no run's id is
    ever used again."""

    def __init__(
        self, bus: Bus, capabilities: Capabilities | None, former_runs: FormerRuns | None = None
    ) -> None:
        self._bus = bus
        self._former_runs = former_runs
        self._capabilities = capabilities
        self._stored = StoredJournals(bus)
        self._room = JournalRoom(bus)
        self._answering: set[asyncio.Task[None]] = set()
        self._asked_bytes = Counter[str]()
        self._asked = Counter[str]()
        self._reporting = Reporting()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer requests until the block ends."""
        doors = [
            await self._bus.subscribe_raw(f"{subject}.*", callback, queue=QUEUE)
            for subject, callback in (
                (subjects.JOURNAL_READ, self._on_read),
                (subjects.JOURNAL_WRITE, self._on_write),
            )
        ]
        try:
            async with self._room.measured():
                yield
        finally:
            for door in doors:
                await door.unsubscribe()
            await stop_tasks(self._answering)

    def _on_read(self, message: RawMessage) -> None:
        self._take(message, self._page, _no_page)

    def _on_write(self, message: RawMessage) -> None:
        self._take(message, self._kept, _not_kept)

    def _take(
        self,
        message: RawMessage,
        answer: Callable[[bytes], Awaitable[bytes]],
        refuse: Callable[[JournalRefusal, str], bytes],
    ) -> None:
        pool = message.subject.rpartition(".")[2]
        size = len(message.data)
        if size > journals.MAX_WRITE_BYTES:
            reason = f"it has {size} bytes; the limit is {journals.MAX_WRITE_BYTES}"
            self._bus.respond(message.reply, refuse("full", reason))
        elif not self._has_room(pool, size):
            self._bus.respond(
                message.reply, refuse("unavailable", "too many requests arrive at once")
            )
        else:
            work = self._answer(message, answer, refuse)
            task = asyncio.create_task(work, name="journal asked")
            self._count(pool, size, 1)
            self._answering.add(task)
            task.add_done_callback(lambda _: self._count(pool, size, -1))
            task.add_done_callback(self._answering.discard)

    def _has_room(self, pool: str, size: int) -> bool:
        return (
            len(self._answering) < MAX_ANSWERING
            and self._asked[pool] < MAX_ANSWERING * POOL_SHARE
            and self._asked_bytes.total() + size <= MAX_ANSWERING_BYTES
            and self._asked_bytes[pool] + size <= MAX_ANSWERING_BYTES * POOL_SHARE
        )

    def _count(self, pool: str, size: int, sign: int) -> None:
        self._asked[pool] += sign
        self._asked_bytes[pool] += sign * size
        if not self._asked[pool]:
            del self._asked[pool], self._asked_bytes[pool]

    async def _answer(
        self,
        message: RawMessage,
        answer: Callable[[bytes], Awaitable[bytes]],
        refuse: Callable[[JournalRefusal, str], bytes],
    ) -> None:
        try:
            body = await answer(message.data)
        except Refused as refused:
            body = refuse(refused.refusal, str(refused))
            if refused.refusal == "refused" and (count := self._reporting.due("refused")):
                log.warning("journal_refused", reason=str(refused), count=count)
        except BusUnavailable as error:
            body = refuse("unavailable", str(error.fields["reason"]))
        except (KeyError, ValueError) as error:  # what is stored there is not from a coordinator
            body = refuse("unavailable", "it cannot be read")
            if count := self._reporting.due("unreadable"):
                log.warning("journal_unreadable", reason=repr(error), count=count)
        self._bus.respond(message.reply, body)

    async def _page(self, body: bytes) -> bytes:
        """Answer a JournalRead."""
        asked, subject = self._believed(body)
        end = await self._stored.end_of(subject)
        if await self._was_left_behind(end, asked.run_id):
            await self._stored.remove(subject, end)
            end = NO_JOURNAL
        _check_is_latest(end, asked)
        if end.seq <= asked.after_seq:
            return msgspec.json.encode(KeptPage(last_seq=end.seq))
        found, more = await self._stored.page(subject, asked.after_seq)
        return msgspec.json.encode(
            KeptPage(
                messages=[msgspec.Raw(one.body) for one in found],
                last_seq=found[-1].seq if found else asked.after_seq,
                more=more,
            )
        )

    async def _was_left_behind(self, end: JournalEnd, run_id: str) -> bool:
        if self._former_runs is None or not end.dispatched_at_ms:
            return False
        return await self._former_runs.has_left(run_id, end.dispatched_at_ms)

    async def _kept(self, body: bytes) -> bytes:
        """Answer a JournalWrite."""
        asked, subject = self._believed(body)
        digest = digest_of(body)
        end = self._stored.known_end_of(subject)
        if end is None or end.seq != asked.after_seq:
            end = await self._stored.end_of(subject)
        if end.digest == digest:  # the request is repeated, because no answer arrived
            return encoded(JournalKept(seq=end.seq))
        _check_is_latest(end, asked)
        if end.seq > asked.after_seq:
            raise Refused("taken", "another worker has written to it since")
        if end.seq < asked.after_seq:
            raise Refused("unavailable", "its end cannot be read now")
        message = msgspec.json.encode(
            KeptMessage(
                run_id=asked.run_id,
                step=asked.step,
                attempt=asked.attempt,
                dispatched_at_ms=asked.dispatched_at_ms,
                delivery=asked.delivery,
                worker=asked.worker,
                number=end.number + 1,
                input_digest=asked.input_digest,
                begins=asked.begins,
                entries=asked.entries,
            )
        )
        after = _after(end, asked, len(message), digest)
        if reason := self._room.refusal(asked.tenant, len(message)):
            raise Refused("full", reason)
        try:
            seq = await self._stored.add(subject, message, after, end.seq)
        except Overtaken:
            await self._stored.end_of(subject)
            raise Refused("taken", "another worker has written to it since") from None
        self._room.wrote(asked.tenant, len(message))
        return encoded(JournalKept(seq=seq))

    def _believed(self, body: bytes) -> tuple[JournalQuestion, str]:
        """Return a request from a worker that was handed the attempt, and the journal's subject;
        raise Refused for any other."""
        try:
            asked = read_question(body)
        except NOT_READ as error:
            raise Refused("refused", str(error)[:MAX_REASON_CHARS]) from None
        if not subjects.TOKEN.fullmatch(asked.run_id):
            raise Refused("refused", "`run_id` is not a run's id")
        capabilities = self._capabilities
        if capabilities is not None and not capabilities.is_of_attempt(
            asked.capability or "",
            asked.tenant,
            asked.run_id,
            asked.step,
            asked.attempt,
            asked.dispatched_at_ms,
        ):
            raise Refused("refused", "`capability` is not that of the attempt")
        return asked, subjects.journal(asked.run_id, journals.name_of(asked.run_id, asked.step))


def _check_is_latest(end: JournalEnd, asked: JournalQuestion) -> None:
    if end.is_later_than(asked.attempt, asked.dispatched_at_ms):
        raise Refused("taken", f"attempt {end.attempt} has it")


def _after(end: JournalEnd, asked: JournalQuestion, added_bytes: int, digest: str) -> JournalEnd:
    """Return a journal's end after one more message; raise Refused if it would exceed a bound."""
    size_bytes = end.size_bytes + added_bytes
    entries = len(asked.entries) + (0 if asked.begins else end.entries)
    if size_bytes > journals.MAX_JOURNAL_BYTES:
        reason = f"it has {end.size_bytes} bytes; the limit is {journals.MAX_JOURNAL_BYTES}"
        raise Refused("full", reason)
    if entries > journals.MAX_ENTRIES:
        raise Refused("full", f"it has {journals.MAX_ENTRIES} entries")
    if end.number + 1 >= journals.MAX_MESSAGES:
        raise Refused("full", f"it has {journals.MAX_MESSAGES} messages")
    if any(len(bytes(one.value)) > journals.MAX_ENTRY_BYTES for one in asked.entries):
        raise Refused("full", f"a value has more than {journals.MAX_ENTRY_BYTES} bytes")
    return JournalEnd(
        0,
        end.number + 1,
        size_bytes,
        entries,
        asked.attempt,
        asked.dispatched_at_ms or 0.0,
        digest,
    )


def _no_page(refusal: JournalRefusal, reason: str) -> bytes:
    return msgspec.json.encode(KeptPage(refusal=refusal, reason=reason))


def _not_kept(refusal: JournalRefusal, reason: str) -> bytes:
    return encoded(JournalKept(refusal=refusal, reason=reason))
