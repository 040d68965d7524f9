"""The journal of one step, as one delivery of an attempt uses it.

States: closed -> open (what earlier attempts did is known, and they can no longer write) -> taken
(another delivery opened it, and this one ends without a result; or a later attempt opened it first, and
this one ends with an error that nobody waits for, so that its message leaves the stream) or broken (it
is unknown whether an entry was stored, and the handler cannot continue). The journal is opened when the
handler first uses it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import structlog

from hocket.kit.process.clock import now_ms
from hocket.schemas import journals
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.journals import JournalEntry, JournalKind, JournalWritten
from hocket.schemas.messages import encoded
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.journal.errors import (
    AttemptEnded,
    JournalFault,
    JournalFull,
    JournalIncomplete,
    JournalMismatch,
    JournalTaken,
    JournalUnavailable,
)
from hocket.workers.runtime.journal.store import JournalStore, Overtaken, WholeJournal

OPENING_TRIES = 8
MESSAGE_BYTES = 512 * 1024
"""The most bytes of entries that are written together."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry belongs in a handler: its scope, and its ordinal among the operations there."""

    scope: str
    ordinal: int
    kind: JournalKind
    name: str
    digest: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """The key by which an entry is found again."""
        return self.scope, self.digest, self.ordinal

    @property
    def inner_scope(self) -> str:
        """The scope of what the function of a step does."""
        return f"{self.scope}#{self.ordinal}/"

    @property
    def where(self) -> str:
        """The branch, as error messages show it; empty outside of branches."""
        return f" in branch `{self.scope}`" if self.scope else ""

    def entry(
        self,
        started_at_ms: float,
        value: Any = None,
        *,
        error: ErrorInfo | None = None,
        large: bool = False,
        cost_usd: Decimal = Decimal(0),
    ) -> JournalEntry:
        """Return the entry of an operation at this place that ends now."""
        return JournalEntry.model_construct(
            scope=self.scope,
            ordinal=self.ordinal,
            kind=self.kind,
            name=self.name,
            digest=self.digest,
            value=value,
            large=large,
            error=error,
            started_at_ms=started_at_ms,
            finished_at_ms=now_ms(),
            cost_usd=cost_usd,
        )


@dataclass(frozen=True, slots=True)
class _Waiting:
    entry: JournalEntry
    size_bytes: int
    stored: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed operation: its task, and how much the handler had asked for by then."""

    entry: JournalEntry
    task: "asyncio.Task[Any] | None"
    asked: Counter[tuple[str, str]]

    @property
    def is_settled(self) -> bool:
        """Whether the branch that failed has dealt with it, and ended. A branch that has not may still
        raise it, perhaps after more work, so that the step is tried again."""
        task = self.task
        return (
            task is not None and task.done() and not task.cancelled() and task.exception() is None
        )

    def is_behind(self, entry: JournalEntry) -> bool:
        """Tell whether an entry, written by the current task, shows that the handler continued past the
        failure.

        It does if it was asked for later, by the task that failed or in an enclosing or nested branch.
        An entry of a concurrent branch shows nothing."""
        scope, failed = entry.scope, self.entry.scope
        is_later = entry.ordinal > self.asked[scope, entry.digest]
        is_beside = not scope.startswith(failed) and not failed.startswith(scope)
        return is_later and (not is_beside or asyncio.current_task() is self.task)


@dataclass(frozen=True, slots=True)
class Found:
    """An entry of an earlier delivery. It is `unpaid` if that delivery was of this same attempt, whose
    result (and cost) was never reported. `inside` are the unpaid model calls of the function that made
    it: nobody asks for them again, because the function is not called again."""

    entry: JournalEntry
    unpaid: bool
    inside: tuple[JournalEntry, ...] = ()


class Journal:
    """What was done for a step. `attempt` is the current one."""

    def __init__(self, store: JournalStore, attempt: Attempt, worker: str) -> None:
        assert attempt.step.journal, "a step without a journal has none"
        self._store = store
        self._attempt = attempt
        self._worker = worker
        self._asked = Counter[tuple[str, str]]()
        self._known: dict[tuple[str, str, int], Found] = {}
        self.noted: list[Failure] = []
        """Failures not yet written. They are written once the handler continues, because only then has
        it dealt with them."""
        self._late: set[tuple[str, str, int]] = set()
        """Places of what the handler began after its attempt had been stopped. It is done, but not
        written: the next attempt does something else there."""
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self.resolving = asyncio.Lock()
        """Held while one of its values is loaded from blobs."""
        self._is_open = False
        self._broken: JournalFault | None = None
        self._number = 0
        self._seq = 0
        self._begins = True
        self._entries = 0

    def place(
        self,
        scope: str,
        kind: JournalKind,
        name: str,
        digest: str = "",
    ) -> Place:
        """Return the place of the next operation in a scope."""
        self._asked[scope, digest] += 1
        return Place(scope, self._asked[scope, digest], kind, name, digest)

    async def find(self, place: Place) -> Found | None:
        """Return the entry that an earlier attempt left at a place, if any; raise JournalMismatch if it
        is of another operation, AttemptEnded if the handler has given a result, and CancelledError if
        the step goes on in another attempt."""
        self._check()
        if self._attempt.is_left_behind:
            raise AttemptEnded
        if self._attempt.goes_on_elsewhere:  # a `finally` of the handler, or a task that it left
            raise asyncio.CancelledError
        if self._attempt.may_be_tried_again:
            self._late.add(place.key)
        await self._open()
        found = self._known.get(place.key)
        if found is not None and (found.entry.kind, found.entry.name) != (place.kind, place.name):
            raise JournalMismatch(
                asked=f"{place.kind} {place.name}",
                done=f"{found.entry.kind} {found.entry.name}",
                ordinal=place.ordinal,
                where=place.where,
            )
        if found is not None and found.unpaid and place.kind == "step":
            return replace(found, inside=tuple(_unpaid_in(place.inner_scope, self._known.values())))
        return found

    def failed(self, entry: JournalEntry) -> None:
        """Note a failure. It is written if the handler continues; otherwise the operation is retried."""
        self.noted.append(Failure(entry, asyncio.current_task(), self._asked.copy()))

    async def keep_failures(self, *, only_settled: bool = False) -> None:
        """Write the failures noted so far, before a wait that may end the attempt; or only those of
        branches that have dealt with them and ended."""
        kept = [one for one in self.noted if one.is_settled or not only_settled]
        self.noted = [one for one in self.noted if only_settled and not one.is_settled]
        await asyncio.gather(*(self.record(one.entry) for one in kept))

    async def record(self, entry: JournalEntry) -> None:
        """Add an entry, and return once it is stored. It is stored even if the caller stops waiting, and
        not at all if the attempt had been stopped before its operation began.

        Raises JournalFull beyond MAX_ENTRIES, and JournalFault if the journal can no longer be used."""
        self._check()
        if (entry.scope, entry.digest, entry.ordinal) in self._late:
            return
        if self._entries + len(self.noted) >= journals.MAX_ENTRIES:
            reason = f"it has {journals.MAX_ENTRIES} entries, and `{entry.name}` would be one more"
            raise JournalFull(reason=reason)
        loop = asyncio.get_running_loop()
        failures = [one.entry for one in self.noted if one.is_behind(entry)]
        self.noted = [one for one in self.noted if not one.is_behind(entry)]
        for one in (*failures, entry):
            waiting = _Waiting(one, len(encoded(one)), loop.create_future())
            waiting.stored.add_done_callback(_seen)
            self._waiting.append(waiting)
            self._entries += 1
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_all())
        await waiting.stored

    async def _open(self) -> None:
        self._check()
        if self._is_open:
            return
        async with self._opening:
            for _ in range(OPENING_TRIES):
                if self._is_open:
                    return
                await self._try_to_open()
        if not self._is_open:
            raise JournalUnavailable(reason="others keep writing to it")

    async def _try_to_open(self) -> None:
        """Read the journal, and keep earlier attempts from adding to it."""
        try:
            whole = await self._store.read(self._attempt.step)
        except Overtaken:  # by a later attempt: nobody waits for this one any longer
            self._broken = JournalTaken()
            self._attempt.stop(self._broken)
            raise self._broken from None
        self._read(whole)
        attempt = self._attempt
        if whole.messages or attempt.step.attempt > 1 or attempt.delivery.deliveries > 1:
            try:
                await self._write(())
            except Overtaken:
                return
        self._is_open = True

    def _read(self, whole: WholeJournal) -> None:
        """Load the entries of earlier attempts; raise JournalIncomplete if a message is missing."""
        step = self._attempt.step
        self._known, self._number, self._entries, self._begins = {}, 0, 0, True
        self._seq = whole.last_seq
        for written in whole.messages:
            if written.number != self._number:
                raise JournalIncomplete(reason=f"message {self._number} is missing")
            self._number += 1
            if written.begins:
                self._known, self._entries = {}, 0
            self._begins = written.input_digest != self._attempt.input_digest
            same = (written.attempt, written.dispatched_at_ms)
            unpaid = same == (step.attempt, step.dispatched_at_ms)
            for entry in written.entries:
                self._entries += 1
                key = entry.scope, entry.digest, entry.ordinal
                self._known.setdefault(key, Found(entry, unpaid))
        if self._begins:
            self._known, self._entries = {}, 0

    async def _write_all(self) -> None:
        """Write the waiting entries, in batches."""
        while self._waiting and self._broken is None:
            batch = self._next_batch()
            try:
                await self._write(tuple(one.entry for one in batch))
            except Overtaken:
                self._lose()
            except JournalFault as fault:
                self._broken = fault
            except asyncio.CancelledError:  # the event loop is shutting down
                self._broken = JournalUnavailable(reason="the worker ends")
            for one in batch if self._broken is None else (*batch, *self._waiting):
                if not one.stored.done():
                    _end(one.stored, self._broken)

    def _next_batch(self) -> list[_Waiting]:
        batch = [self._waiting.pop(0)]
        size_bytes = batch[0].size_bytes
        while self._waiting and size_bytes + self._waiting[0].size_bytes <= MESSAGE_BYTES:
            size_bytes += self._waiting[0].size_bytes
            batch.append(self._waiting.pop(0))
        return batch

    async def _write(self, entries: tuple[JournalEntry, ...]) -> None:
        step = self._attempt.step
        written = JournalWritten(
            run_id=step.run_id,
            step=step.step,
            attempt=step.attempt,
            dispatched_at_ms=step.dispatched_at_ms,
            delivery=self._attempt.delivery.deliveries,
            worker=self._worker,
            number=self._number,
            input_digest=self._attempt.input_digest,
            begins=self._begins,
            entries=entries,
        )
        self._seq = await self._store.write(step, written, after_seq=self._seq)
        self._number += 1
        self._begins = False

    def hold(self, held_bytes: int) -> int | None:
        """Note that the attempt holds this much more of the room for blobs until it ends; return how
        much it holds in all, None if it is over and holds nothing."""
        if self._attempt.is_over:
            return None
        self._attempt.held_bytes += held_bytes
        return self._attempt.held_bytes

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _lose(self) -> None:
        """End this delivery without a result, because another worker now writes for the step. Its
        message is left alone, because it may be that worker's."""
        log.warning("journal_taken", attempt_id=self._attempt.id)
        self._broken = JournalTaken()
        self._attempt.give_back()


def _unpaid_in(scope: str, known: Iterable[Found]) -> Iterator[JournalEntry]:
    """Yield the model calls in a scope, and below it, whose cost was never reported."""
    for found in known:
        if found.unpaid and found.entry.kind == "model" and found.entry.scope.startswith(scope):
            yield found.entry


def _end(stored: "asyncio.Future[None]", error: Exception | None) -> None:
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(error)


def _seen(future: "asyncio.Future[None]") -> None:
    """Retrieve a future's error even if nobody waits for it, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
