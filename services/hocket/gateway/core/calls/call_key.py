"""By what a gateway knows a call: its id, and whose call it is.

Callers choose the ids of their calls, so an id alone would let one step of a run, or one key of a
tenant, have the reply of another's call, or leave it a reply of its own choice. And if a crash took
the end of a log, an attempt may be handed out again with another input: its calls have the same ids
and other prompts.
"""

from typing import NamedTuple, Self

from hocket.schemas.labels import KEY_LABEL
from hocket.schemas.messages import CallRequest, HeldCall


class CallKey(NamedTuple):
    """The key of a call: only a repeat by the same dispatch of a step, or with the same platform key,
    is the same call."""

    tenant: str
    call_id: str
    run_id: str | None = None
    step: str | None = None
    dispatched_at_ms: float | None = None
    key_id: str | None = None

    @classmethod
    def of(cls, request: CallRequest) -> Self:
        """Return the key of a call."""
        who = request.attribution
        key_id = (who.labels or {}).get(KEY_LABEL)
        at_ms = request.dispatched_at_ms
        return cls(who.tenant, request.call_id, who.run_id, who.step, at_ms, key_id)

    @classmethod
    def of_held(cls, held: HeldCall) -> Self:
        """Return the key of a call that another gateway asks about."""
        return cls(held.tenant, held.call_id, held.run_id, held.step, held.dispatched_at_ms)
