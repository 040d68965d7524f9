"""What one partition decided that is not in Postgres yet, in parts that are written one after the other.

An event changes several things, which are written together with the offset behind it or not at all.
"""

from hocket.coordinator.core.run.state.columns import Row
from hocket.coordinator.storage.pending_changes import Dirty, Pending


class UnwrittenChanges:
    """Those of one tenure. `offset`: the place in the log up to which all is written, and its
    message."""

    def __init__(self, offset: tuple[int, str]) -> None:
        self.pending: Pending | None = None
        """What is decided now."""
        self._offset = offset
        self._batches = 0
        self._applying = False
        """An event is half applied: what it changed and the offset behind it are written together."""
        self._passed_over = False
        """The committer came while an event was half applied, and takes what is whole behind it."""
        self._whole: Pending | None = None
        """What was pending when that event was applied: the next one may begin at once, and wait for
        Postgres, so that the committer would never find the partition between two events."""
        self._taken: Pending | None = None
        """What the committer writes at present."""

    @property
    def has_more(self) -> bool:
        """Whether there is more to write than what was taken."""
        return self.pending is not None or self._whole is not None

    def begin_event(self) -> None:
        """Give nothing of the event to be written that is applied from now on until it is whole."""
        self._applying = True

    def end_event(self) -> None:
        """The event is applied, or could not be."""
        self._applying = False

    def begin(self) -> Pending:
        """Begin what is decided from now on."""
        self.pending = self.unkept()
        return self.pending

    def unkept(self) -> Pending:
        """Return what takes decisions that are not to be written."""
        return Pending(*self._offset)

    def applied(self, pending: Pending, seq: int, msg_id: str, size_bytes: int) -> bool:
        """Move the offset behind an event of so many bytes; tell whether the committer waits for what is
        whole now."""
        pending.events += 1
        pending.size_bytes += size_bytes
        pending.seq, pending.msg_id = self._offset = seq, msg_id
        if not self._passed_over or self._whole is not None:
            return False
        self._passed_over = False
        self._whole, self.pending = pending, None
        return True

    def take(self) -> Pending | None:
        """Return what may be written now, if anything: no half of an event."""
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
        """What was taken is written."""
        self._taken = None

    def of(self, run_id: str) -> list[Dirty]:
        """Return what is decided of a run and may not be in Postgres, in this order."""
        parts = (self._taken, self._whole, self.pending)
        return [part.dirty[run_id] for part in parts if part is not None and run_id in part.dirty]

    def withdraw(self, run_id: str) -> dict[str, Row | None]:
        """Drop what was decided of a run since `take`; return the steps that this changed."""
        steps: dict[str, Row | None] = {}
        for part in (self._whole, self.pending):
            if part is not None and run_id in part.dirty:
                steps |= part.dirty[run_id].steps
                part.forget(run_id)
        return steps

    def drop(self) -> list[Pending]:
        """Drop all of it; return what nobody has taken."""
        dropped = [part for part in (self._whole, self.pending) if part is not None]
        self._taken = self._whole = self.pending = None
        return dropped
