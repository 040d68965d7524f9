"""The order of arrival: ready steps of one node type go as they came.

What slack order is compared with (`HOCKET_DISPATCH_ORDER=arrival`): no class, tenant, run or deadline
is looked at. Same protocol as `precedence.Waiting`.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping

from hocket.coordinator.core.scheduling.priority_queue import Ready


class FifoQueue:
    """The steps of one node type that wait, first come first served."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, Ready] = OrderedDict()
        self._by_run: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, attempt_id: str) -> bool:
        return attempt_id in self._held

    @property
    def runs(self) -> int:
        """How many runs have steps here."""
        return len(self._by_run)

    def has_right_of_way(self, barred: str | None) -> bool:
        """Nobody has."""
        del barred
        return False

    def push(self, step: Ready) -> None:
        """Let a step wait; one that waits already is left where it is."""
        if step.attempt_id not in self._held:
            self._held[step.attempt_id] = step
            self._by_run[step.run_id] += 1

    def pop(
        self, now_ms: float, out: Mapping[str, int], share: float, barred: str | None = None
    ) -> Ready:
        """Return the step that came first."""
        del now_ms, out, share, barred
        _, step = self._held.popitem(last=False)
        self._left(step)
        return step

    def remove(self, attempt_id: str) -> Ready | None:
        """Take a step out that shall not go any more."""
        step = self._held.pop(attempt_id, None)
        if step is not None:
            self._left(step)
        return step

    def place_again(self, run: Ready) -> None:
        """Nothing: what a run has in work does not matter."""

    def steps(self) -> list[Ready]:
        """Return what waits, in order."""
        return list(self._held.values())

    def _left(self, step: Ready) -> None:
        self._by_run[step.run_id] -= 1
        if not self._by_run[step.run_id]:
            del self._by_run[step.run_id]
