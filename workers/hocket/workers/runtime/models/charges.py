"""What an attempt costs besides model calls: requests that have a price, seconds of a node type that has
one, and what handlers say."""

from decimal import Decimal, InvalidOperation

from hocket.schemas.messages import Spend
from hocket.workers.runtime.models.attempt_calls import NOTHING_SPENT

MAX_CHARGE_USD = 1_000_000
"""Of one attempt."""


class Charged:
    """The part of a handler's context that has the attempt's charges."""

    _charged_usd = Decimal(0)

    def charge(self, usd: Decimal | str | int) -> None:
        """Add what something cost (US dollars, 0 to 1,000,000 in all) to what this attempt has spent: it
        counts for the budgets of its run, and of agents and planners around it. Raises ValueError for
        any other amount.

        It is told with the attempt's result, whatever that is. In a handler with a journal, charge
        inside of what `context.step` calls: the rest is done again."""
        try:
            charged_usd = self._charged_usd + Decimal(usd)
            is_amount = self._charged_usd <= charged_usd <= MAX_CHARGE_USD
        except InvalidOperation:  # no number is nan, either
            raise ValueError(f"`{usd}` is no amount of US dollars") from None
        if not is_amount:
            raise ValueError(f"{usd} USD is below 0, or more than one attempt may cost")
        self._charged_usd = charged_usd

    def _with_charges(self, calls: Spend | None) -> Spend | None:
        """Return what model calls used, with the charges."""
        usd = self._charged_usd
        if not usd:
            return calls
        calls = calls or NOTHING_SPENT
        return calls.model_copy(update={"cost_usd": calls.cost_usd + usd, "charged_usd": usd})
