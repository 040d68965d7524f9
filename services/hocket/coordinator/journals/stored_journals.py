"""Journals in the stream JOURNALS: finding how each of them ends, reading it, and adding a message.

A message names the sequence of its journal's last message, which the stream compares: of two
writers that know the same end, only one succeeds. A header describes the journal up to and
including its message, so that bounds can be enforced without reading it.
"""

import hashlib
from collections import OrderedDict
from dataclasses import astuple, dataclass, replace

from pydantic_core import from_json

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.stored_messages import StoredMessage, last_message, messages_from
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.journals import MAX_PAGE_BYTES
from hocket.schemas.subjects import JOURNALS

TIMEOUT_MS = 5_000.0
KNOWN_ENDS = 4_096
"""How many journals have their end remembered by a coordinator."""
END = "Hocket-Journal"
"""Header: number, bytes and entries of the journal, attempt, its dispatch and the write's digest."""
_WRONG_SEQUENCE = frozenset({10_071, 10_164})


class Overtaken(Exception):
    """Another message is the journal's last one."""


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """The last message of a journal, and what the journal holds up to there."""

    seq: int
    number: int
    size_bytes: int
    entries: int
    attempt: int
    dispatched_at_ms: float
    digest: str

    def is_later_than(self, attempt: int, dispatched_at_ms: float | None) -> bool:
        """Tell whether it is from an attempt that was handed out after this one. An attempt that is
        handed out again after the log lost its tail has a lower number and a later time: it may go
        on."""
        return self.attempt > attempt and self.dispatched_at_ms >= (dispatched_at_ms or 0.0)


NO_JOURNAL = JournalEnd(0, -1, 0, 0, 0, 0.0, "")


class StoredJournals:
    """Reads and writes journals over one bus. All methods raise BusUnavailable if NATS does not
    answer."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ends: OrderedDict[str, JournalEnd] = OrderedDict()

    async def end_of(self, subject: str) -> JournalEnd:
        """Return a journal's present end in the stream."""
        stored = await last_message(self._bus, JOURNALS, subject)
        end = NO_JOURNAL if stored is None else _end_of(stored)
        self._remember(subject, end)
        return end

    def known_end_of(self, subject: str) -> JournalEnd | None:
        """Return a journal's end as this coordinator last saw it; None if it never did."""
        return self._ends.get(subject)

    async def page(self, subject: str, after_seq: int) -> tuple[list[StoredMessage], bool]:
        """Return the messages after a sequence, and whether there are more: at least one message,
        and otherwise at most MAX_PAGE_BYTES."""
        found, is_last = await messages_from(
            self._bus, JOURNALS, subject, after_seq + 1, max_bytes=MAX_PAGE_BYTES
        )
        size_bytes = 0
        for index, one in enumerate(found):
            size_bytes += len(one.body)
            if index and size_bytes > MAX_PAGE_BYTES:
                return found[:index], True
        return found, not is_last

    async def add(self, subject: str, body: bytes, end: JournalEnd, after_seq: int) -> int:
        """Store a message after another one and return its sequence; raise Overtaken if that one is
        no longer the last. `end` describes the journal including the new message."""
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(after_seq),
            "Nats-Msg-Id": f"{subject}:{after_seq}:{end.digest}",
            END: " ".join(map(str, astuple(end)[1:])),
        }
        answer = await self._bus.request(subject, body, timeout_ms=TIMEOUT_MS, headers=headers)
        seq = _stored_at(answer)
        self._remember(subject, replace(end, seq=seq))
        return seq

    async def remove(self, subject: str, end: JournalEnd) -> None:
        """Remove a journal up to its `end`."""
        wanted = {"filter": subject, "seq": end.seq + 1}
        answer = await self._bus.api(f"STREAM.PURGE.{JOURNALS}", wanted, timeout_ms=TIMEOUT_MS)
        if "error" in answer:
            raise BusUnavailable(reason=f"{JOURNALS}: {answer['error'].get('description', '')}")
        self._ends.pop(subject, None)

    def _remember(self, subject: str, end: JournalEnd) -> None:
        self._ends[subject] = end
        self._ends.move_to_end(subject)
        if len(self._ends) > KNOWN_ENDS:
            self._ends.popitem(last=False)


def digest_of(asked: bytes) -> str:
    """Return a digest that distinguishes a write from others, and is the same when it is repeated."""
    return hashlib.blake2b(asked, digest_size=16).hexdigest()


def _end_of(stored: StoredMessage) -> JournalEnd:
    number, size_bytes, entries, attempt, dispatched_at_ms, digest = stored.headers[END].split(" ")
    return JournalEnd(
        stored.seq,
        int(number),
        int(size_bytes),
        int(entries),
        int(attempt),
        float(dispatched_at_ms),
        digest,
    )


def _stored_at(answer: RawMessage) -> int:
    told = from_json(answer.data)
    error = told.get("error")
    if error is None:
        return int(told["seq"])
    if error.get("err_code") in _WRONG_SEQUENCE:
        raise Overtaken
    raise BusUnavailable(reason=f"{JOURNALS}: {error.get('description', error)}")
