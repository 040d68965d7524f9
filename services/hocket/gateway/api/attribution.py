"""Checks the attribution of workers' calls: a call may name a run only if its caller was given an
attempt of that run."""

from hocket.gateway.core.errors import CallNotAttributable
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import Attribution, CallRequest, RootBudget


def check_attribution(
    capabilities: Capabilities | None, request: CallRequest, *, of_guest: bool = False
) -> None:
    """Raise CallNotAttributable if a call names a run of which its caller was given no attempt.

    Without a key nothing is checked. A guest (the bearer of a worker's key) may only make calls for
    attempts it was given.
    """
    who = request.attribution
    _check_root_budget(capabilities, who, request.root_budget)
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


def _check_root_budget(
    capabilities: Capabilities | None, who: Attribution, root: RootBudget | None
) -> None:
    """Raise CallNotAttributable if a call would spend from the budget of a run
    that is not above its own."""
    if capabilities is None or root is None:
        return
    if who.run_id is None or not capabilities.is_of_root_budget(
        root.seal or "", who.tenant, who.run_id, root.run_id, root.budget_usd
    ):
        raise CallNotAttributable(run_id=who.run_id or root.run_id, field="root_budget")
