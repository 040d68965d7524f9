"""How long an attempt waited for models. Pure: callers pass the time.

Calls may overlap: each moment in which at least one is outstanding counts once. The total is divided
between the gateway's queues and the models in the same proportion as the calls' summed times.
"""

from dataclasses import dataclass

from hocket.schemas.messages import Timing


@dataclass(slots=True)
class ModelTime:
    """The clock of one attempt's model calls."""

    _out: int = 0
    _since_ms: float = 0.0
    _waited_ms: float = 0.0
    _called_ms: float = 0.0
    _queued_ms: float = 0.0

    def asked(self, now_ms: float) -> None:
        """Note that a call was sent."""
        if not self._out:
            self._since_ms = now_ms
        self._out += 1

    def answered(self, now_ms: float, *, asked_at_ms: float, queue_ms: float) -> None:
        """Note that a call sent at `asked_at_ms` was answered or abandoned, after waiting `queue_ms` at
        the gateway."""
        assert self._out > 0, "a call comes back once"
        took_ms = max(0.0, now_ms - asked_at_ms)
        self._called_ms += took_ms
        self._queued_ms += min(max(0.0, queue_ms), took_ms)
        self._out -= 1
        if not self._out:
            self._waited_ms += max(0.0, now_ms - self._since_ms)

    def timing(self) -> Timing | None:
        """Return the time waited so far, or None if no call has been answered."""
        if not self._called_ms:
            return None
        queue_ms = self._waited_ms * self._queued_ms / self._called_ms
        return Timing(gateway_queue_ms=queue_ms, model_ms=self._waited_ms - queue_ms)
