"""What one partition decided that is not in Postgres yet, in parts that are written one after the
other.

An event changes several things, which are written together with the offset after it, or not at all.
"""

from hocket.coordinator.storage.pending_changes import Dirty, Pending


class UnwrittenChanges:
    """The unwritten changes of one tenure. `offset`: the place in the log up to which everything is
    written, and its message."""

    def __init__(self, offset: tuple[int, str]) -> None:
        self.pending: Pending | None = None
        """What is being decided now."""
        self._offset = offset
        self._batches = 0
        self._applying = False
        """Whether an event is half applied: its changes and the offset after it are written together."""
        self._passed_over = False
        """Whether the committer came while an event was half applied, and waits for what is
        complete after it."""
        self._whole: Pending | None = None
        """What was pending when that event had been applied. The next event may begin at once and
        wait for Postgres, so that otherwise the committer would never find the partition between
        two events."""
        self._taken: Pending | None = None
        """What the committer is writing now."""

    @property
    def parts(self) -> list[Pending]:
        """What is not written, in the order in which it will be."""
        parts = (self._taken, self._whole, self.pending)
        return [part for part in parts if part is not None]

    @property
    def has_more(self) -> bool:
        """Whether there is more to write than what was taken."""
        return self.pending is not None or self._whole is not None

    def begin_event(self) -> None:
        """Keep back the changes of the event that is now being applied, until it is complete."""
        self._applying = True

    def end_event(self) -> None:
        """Note that the event is applied, or was set aside."""
        self._applying = False

    def break_off(self) -> bool:
        """Note that the event is not applied any further; tell whether the committer waits for what is
        decided, which is complete now."""
        waited, self._passed_over = self._passed_over, False
        self._applying = False
        return waited and self.pending is not None

    def begin(self) -> Pending:
        """Begin a new part for what is decided from now on."""
        self.pending = self.unkept()
        return self.pending

    def unkept(self) -> Pending:
        """Return a part for decisions that will not be written."""
        return Pending(*self._offset)

    def applied(self, pending: Pending, seq: int, msg_id: str, size_bytes: int) -> bool:
        """Advance the offset past an event of this size; tell whether the committer waits for what
        is now complete."""
        pending.events += 1
        pending.size_bytes += size_bytes
        pending.seq, pending.msg_id = self._offset = seq, msg_id
        if not self._passed_over or self._whole is not None:
            return False
        self._passed_over = False
        self._whole, self.pending = pending, None
        return True

    def take(self) -> Pending | None:
        """Return what may be written now, if anything: never half an event."""
        if self._whole is not None:
            part, self._whole = self._whole, None
        elif self.pending is not None and not self._applying:
            part, self.pending = self.pending, None
        else:
            self._passed_over = self.pending is not None
            return None
        self._batches += 1
        part.number = self._batches
        self._taken = part
        return part

    def wrote(self) -> None:
        """Note that what was taken is written."""
        self._taken = None

    def of(self, run_id: str) -> list[Dirty]:
        """Return what is decided of a run and may not be in Postgres yet, in order."""
        return [part.dirty[run_id] for part in self.parts if run_id in part.dirty]

    def withdraw(self, run_id: str) -> list[Dirty]:
        """Drop what was decided of a run since `take`, and return it, in order."""
        withdrawn: list[Dirty] = []
        for part in (self._whole, self.pending):
            if part is not None and run_id in part.dirty:
                withdrawn.append(part.dirty[run_id])
                part.forget(run_id)
        return withdrawn

    def drop(self) -> list[Pending]:
        """Drop everything; return the parts that the committer has not taken."""
        dropped = [part for part in (self._whole, self.pending) if part is not None]
        self._taken = self._whole = self.pending = None
        return dropped
