"""Whose call it is, as far as a worker can say it: a run's, where it was handed an attempt of
it."""

from hocket.gateway.core.errors import CallNotAttributable
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import Attribution, CallRequest, RootBudget


def check_attribution(
    capabilities: Capabilities | None, request: CallRequest, *, of_guest: bool = False
) -> None:
    """Raise CallNotAttributable where a call names a run whose attempt its caller was not given.
    Without a key nothing is checked. A guest (the bearer of a worker's key) calls for attempts that
    it was given, and for nobody else."""
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
    """Raise CallNotAttributable where a call would spend from the budget of a run that its own does not
    stand below."""
    if capabilities is None or root is None:
        return
    if who.run_id is None or not capabilities.is_of_root_budget(
        root.seal or "", who.tenant, who.run_id, root.run_id, root.budget_usd
    ):
        raise CallNotAttributable(run_id=who.run_id or root.run_id, field="root_budget")
