"""The journals of a play's steps, in memory and with the checks of a coordinator."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.schemas.journals import JournalWritten
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.journal.store import JournalStore, Overtaken, WholeJournal


@dataclass(slots=True)
class _Kept:
    messages: list[str] = field(default_factory=list)
    """As JSON, because each attempt reads its own values, which its handler may change."""
    attempt: int = 0


class PlayedJournals(JournalStore):
    """Keeps the journals of all steps of a play; `stored` is called with a step and the number of its
    new entries."""

    def __init__(self, stored: Callable[[RequestedStep, int], None]) -> None:
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._stored = stored

    async def read(self, step: RequestedStep) -> WholeJournal:
        """Return a step's journal; raise Overtaken if a later attempt has it."""
        kept = self._of(step)
        if kept.attempt > step.attempt:
            raise Overtaken
        messages = tuple(map(JournalWritten.model_validate_json, kept.messages))
        return WholeJournal(messages, len(messages))

    async def write(self, step: RequestedStep, written: JournalWritten, *, after_seq: int) -> int:
        """Append a message after the one with that sequence; raise Overtaken if it is not the last."""
        kept = self._of(step)
        if kept.attempt > step.attempt or after_seq != len(kept.messages):
            raise Overtaken
        kept.attempt = step.attempt
        message = written.model_dump_json()
        JournalWritten.model_validate_json(message)
        kept.messages.append(message)
        self._stored(step, len(written.entries))
        return len(kept.messages)

    def _of(self, step: RequestedStep) -> _Kept:
        return self._kept.setdefault((step.run_id, step.step), _Kept())
