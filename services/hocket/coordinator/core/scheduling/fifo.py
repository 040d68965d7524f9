"""The order of arrival: ready steps of one node type go out as they came.

This is what slack order is compared with (`HOCKET_DISPATCH_ORDER=arrival`): class, tenant, run and
deadline do not matter. Same protocol as `priority_queue.Waiting`.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping

from hocket.coordinator.core.scheduling.priority_queue import Ready


class FifoQueue:
    """The waiting steps of one node type, first come, first served."""

    def __init__(self) -> None:
        self.held: OrderedDict[str, Ready] = OrderedDict()
        """The waiting steps, by attempt; only for reading."""
        self._by_run: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.held)

    def __contains__(self, attempt_id: str) -> bool:
        return attempt_id in self.held

    @property
    def runs(self) -> int:
        """How many runs have steps here."""
        return len(self._by_run)

    def has_right_of_way(self, barred: str | None) -> bool:
        """Return False: no step has right of way."""
        del barred
        return False

    def push(self, step: Ready) -> None:
        """Add a step; one that is already waiting keeps its place."""
        if step.attempt_id not in self.held:
            self.held[step.attempt_id] = step
            self._by_run[step.run_id] += 1

    def pop(
        self, now_ms: float, out: Mapping[str, int], share: float, barred: str | None = None
    ) -> Ready:
        """Remove and return the step that came first."""
        del now_ms, out, share, barred
        _, step = self.held.popitem(last=False)
        self._left(step)
        return step

    def remove(self, attempt_id: str) -> Ready | None:
        """Remove a step that is no longer to go out; return it, or None if it does not wait here."""
        step = self.held.pop(attempt_id, None)
        if step is not None:
            self._left(step)
        return step

    def place_again(self, run: Ready) -> None:
        """Do nothing: it does not matter how many slots a run has."""

    def steps(self) -> list[Ready]:
        """Return the waiting steps, in order."""
        return list(self.held.values())

    def _left(self, step: Ready) -> None:
        self._by_run[step.run_id] -= 1
        if not self._by_run[step.run_id]:
            del self._by_run[step.run_id]
