"""Events for runs that this log has not accepted (yet): results, if the log lost its tail or they
belong to no run, and cancellations that overtook the beginning of their sub-run."""

from collections import OrderedDict

from hocket.schemas.messages import AttemptFinished, CancelRequested, encoded

MAX_RUNS = 10_000
MAX_BYTES = 16 * 1024 * 1024


PendingEvent = AttemptFinished | CancelRequested


class PendingEvents:
    """Holds events until their run is accepted; if there are too many, the oldest are dropped."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, list[PendingEvent]] = OrderedDict()
        self._bytes = 0

    def hold(self, event: PendingEvent) -> None:
        """Hold an event."""
        self._held.setdefault(event.run_id, []).append(event)
        self._bytes += _size(event)
        while len(self._held) > MAX_RUNS or self._bytes > MAX_BYTES:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= sum(map(_size, dropped))

    def take(self, run_id: str) -> list[PendingEvent]:
        """Remove and return the events of a run, in order."""
        found = self._held.pop(run_id, [])
        self._bytes -= sum(map(_size, found))
        return found


def _size(event: PendingEvent) -> int:
    return len(encoded(event))
