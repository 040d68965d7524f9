"""Results of runs that this log has not accepted (yet): it lost its tail, or they are nobody's."""

from collections import OrderedDict

from hocket.schemas.messages import AttemptFinished, encoded

MAX_RUNS = 10_000
MAX_BYTES = 16 * 1024 * 1024


class Orphans:
    """Holds results until their run is accepted; of too many the oldest are dropped."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, list[AttemptFinished]] = OrderedDict()
        self._bytes = 0

    def hold(self, event: AttemptFinished) -> None:
        """Keep a result."""
        self._held.setdefault(event.run_id, []).append(event)
        self._bytes += _size(event)
        while len(self._held) > MAX_RUNS or self._bytes > MAX_BYTES:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= sum(map(_size, dropped))

    def take(self, run_id: str) -> list[AttemptFinished]:
        """Return and forget the results of a run."""
        found = self._held.pop(run_id, [])
        self._bytes -= sum(map(_size, found))
        return found


def _size(event: AttemptFinished) -> int:
    return len(encoded(event))
