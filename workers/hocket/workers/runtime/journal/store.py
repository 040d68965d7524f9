"""How a worker reads and writes journals: by asking a coordinator, which stores them.

A request repeats what identifies the step, including its capability. It may reach any coordinator, even
one that hangs, so it is repeated for up to TIMEOUT_MS while earlier answers may still arrive. The
coordinator recognises a write that it has already stored.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas import subjects
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.journals import (
    MAX_JOURNAL_BYTES,
    JournalKept,
    JournalPage,
    JournalRead,
    JournalWrite,
    JournalWritten,
)
from hocket.schemas.messages import encoded
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.journal.errors import (
    JournalFull,
    JournalIncomplete,
    JournalRefused,
    JournalUnavailable,
)

TIMEOUT_MS = 30_000.0
"""The limit on a read or a write, including all tries."""
FIRST_WAIT_S, MAX_WAIT_S = 0.5, 2.0
"""How long to wait for an answer before the request is repeated; the wait doubles each time."""
PAUSE_S = 0.1
"""The pause after a coordinator answered that the journal is unavailable now."""
MAX_PAGES = 2 * MAX_JOURNAL_BYTES // (256 * 1024)
"""The most pages of one journal: every page but the last is at least half full."""

Answer = TypeVar("Answer", JournalPage, JournalKept)


class Overtaken(Exception):
    """Another delivery or attempt has taken over the journal."""


@dataclass(frozen=True, slots=True)
class WholeJournal:
    """All messages of a journal, and the sequence number of the last one (0 if there is none)."""

    messages: tuple[JournalWritten, ...]
    last_seq: int


class JournalStore:
    """Reads and writes journals over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def read(self, step: RequestedStep) -> WholeJournal:
        """Return a step's journal; raise Overtaken if a later attempt has it, JournalUnavailable if it
        cannot be read now."""
        subject = f"{subjects.JOURNAL_READ}.{_token(step)}"
        found: list[JournalWritten] = []
        last_seq = 0
        for _ in range(MAX_PAGES):
            asked = JournalRead(**_head(step), after_seq=last_seq)
            page = await self._asked(subject, asked, JournalPage)
            found += page.messages
            last_seq = page.last_seq
            if not page.more:
                return WholeJournal(tuple(found), last_seq)
        raise JournalUnavailable(reason="it is larger than a journal may be")

    async def write(self, step: RequestedStep, written: JournalWritten, *, after_seq: int) -> int:
        """Append a message after the one with sequence number `after_seq` (0 for none) and return its
        own number; raise Overtaken if a different message is the last."""
        subject = f"{subjects.JOURNAL_WRITE}.{_token(step)}"
        asked = JournalWrite(
            **_head(step),
            after_seq=after_seq,
            delivery=written.delivery,
            worker=written.worker,
            input_digest=written.input_digest,
            begins=written.begins,
            entries=written.entries,
        )
        return (await self._asked(subject, asked, JournalKept)).seq

    async def _asked(self, subject: str, asked: JournalRead, answer: type[Answer]) -> Answer:
        body, until_ms = encoded(asked), monotonic_ms() + TIMEOUT_MS
        wait_s, reason = FIRST_WAIT_S, "no answer"
        asking: set[asyncio.Future[RawMessage]] = set()
        try:
            while (left_ms := until_ms - monotonic_ms()) > 0:
                asking.add(self._bus.ask(subject, body))
                answered, asking = await asyncio.wait(
                    asking,
                    timeout=min(wait_s, left_ms / 1000),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for found in [_told(one, answer) for one in answered]:
                    if not isinstance(found, str):
                        return found
                    reason = found
                if answered:
                    await asyncio.sleep(PAUSE_S)
                else:
                    wait_s = min(2 * wait_s, MAX_WAIT_S)
        finally:
            for one in asking:
                one.cancel()
        raise JournalUnavailable(reason=reason)


def _told(asked: asyncio.Future[RawMessage], answer: type[Answer]) -> Answer | str:
    """Return the answer, or the reason why there is none now; raise if the refusal is final."""
    try:
        found = _read(asked.result().data, answer)
    except BusUnavailable as error:
        return str(error.fields["reason"])
    if found.refusal is None:
        return found
    if found.refusal != "unavailable":
        raise _refusal(found)
    return found.reason


def _read(body: bytes, answer: type[Answer]) -> Answer:
    try:
        return answer.model_validate_json(body)
    except ValidationError as error:
        fault = first_fault(error)
        raise JournalIncomplete(reason=f"its content cannot be read: {fault.reason}") from None


def _refusal(answer: JournalPage | JournalKept) -> Exception:
    if answer.refusal == "taken":
        return Overtaken(answer.reason)
    if answer.refusal == "full":
        return JournalFull(reason=answer.reason)
    return JournalRefused(reason=answer.reason)


def _token(step: RequestedStep) -> str:
    return subjects.pool_token(subjects.pool(step.type, step.queue))


def _head(step: RequestedStep) -> dict[str, Any]:
    return {
        "tenant": step.tenant,
        "run_id": step.run_id,
        "step": step.step,
        "attempt": step.attempt,
        "dispatched_at_ms": step.dispatched_at_ms,
        "capability": step.capability,
    }
