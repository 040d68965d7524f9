"""Whose call it is, as far as a worker can say it: a run's, where it was handed an attempt of
it."""

from hocket.gateway.core.errors import CallNotAttributable
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import CallRequest


def check_attribution(
    capabilities: Capabilities | None, request: CallRequest, *, of_guest: bool = False
) -> None:
    """Raise CallNotAttributable where a call names a run whose attempt its caller was not given.
    Without a key nothing is checked. A guest (the bearer of a worker's key) calls for attempts that
    it was given, and for nobody else."""
    who = request.attribution
    if of_guest and (capabilities is None or who.run_id is None):
        raise CallNotAttributable(run_id=who.run_id or "", field="run_id")
    if capabilities is None or who.run_id is None:
        return
    if request.capability is None or not capabilities.is_of_attempt(
        request.capability,
        who.tenant,
        who.run_id,
        who.step or "",
        who.attempt or 0,
        request.dispatched_at_ms,
    ):
        raise CallNotAttributable(run_id=who.run_id, field="capability")
