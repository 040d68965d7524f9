"""Remembers recent cancellations, for attempts that arrive after them. Pure.

A cancellation applies to attempts that were sent before it arrived; a later dispatch (a retry, a resumed
run) is a new decision and runs. Attempts with a capability are told apart by it, whatever the worker's
clock shows. Bounded by count and by age.
"""

from collections import OrderedDict

from hocket.schemas.capabilities import hashed
from hocket.schemas.messages import StepCancelled

MAX_REMEMBERED = 10_000
MAX_AGE_MS = 120_000.0

Target = tuple[str, str | None, int | None, str | None]


class Cancellations:
    """The latest cancellations, by what they apply to: (run, step or all, attempt or all, hash of the
    capability)."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Target, tuple[float, str]] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was cancelled lately, as most of the time."""
        return not self._seen

    def remember(self, cancelled: StepCancelled, now_ms: float) -> None:
        """Keep a cancellation that arrived at `now_ms`; drop those that are too old or too many."""
        target = (
            cancelled.run_id,
            cancelled.step,
            cancelled.attempt,
            cancelled.capability_sha256,
        )
        self._seen[target] = (now_ms, cancelled.reason)
        self._seen.move_to_end(target)
        while self._seen:
            oldest_at_ms, _ = next(iter(self._seen.values()))
            if len(self._seen) <= MAX_REMEMBERED and now_ms - oldest_at_ms <= MAX_AGE_MS:
                break
            self._seen.popitem(last=False)

    def reason_for(
        self,
        run_id: str,
        step: str,
        attempt: int,
        *,
        sent_at_ms: float,
        now_ms: float,
        capability: str | None = None,
    ) -> str | None:
        """Return why an attempt sent at `sent_at_ms` was cancelled; None if it was not, or if the
        cancellation did not have the hash of its capability."""
        shown = hashed(capability)
        for concerned in ((run_id, step, attempt), (run_id, step, None), (run_id, None, None)):
            found = self._seen.get((*concerned, shown))
            if not found or now_ms - found[0] > MAX_AGE_MS:
                continue
            if shown is not None or found[0] >= sent_at_ms:  # a hash names one dispatch alone
                return found[1] or "cancelled"
        return None
