"""What an attempt costs besides model calls: priced requests, the price per second of its node type, and
the charges of its handler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import ROUND_UP, Decimal, InvalidOperation
from threading import Lock

from hocket.schemas.messages import Spend
from hocket.workers.runtime.journal.errors import AttemptEnded
from hocket.workers.runtime.models.amounts import MONEY, written
from hocket.workers.runtime.models.attempt_calls import NOTHING_SPENT

MAX_CHARGE_USD = 1_000_000
"""The most that one attempt may charge."""
_NANO = Decimal("1e-9")
_adding = Lock()
"""Functions of one attempt may charge in several threads at once."""


class Charged:
    """The part of a handler's context that keeps the attempt's charges."""

    _has_ended: Callable[[], bool] | None = None
    """Whether the attempt's result is out."""
    _charged_usd = Decimal(0)
    _accrued: Callable[[], Decimal] | None = None
    """What the block costs that is being charged."""

    def charge(self, usd: Decimal | str | int | float) -> None:
        """Add a cost in US dollars (0 to 1,000,000 in total) to what this attempt has spent. A float is
        rounded up to nine decimal places.

        It counts against the budgets of its run and of the agents and planners around it, and is
        reported with the attempt's result, whether or not the attempt succeeds. Raises ValueError for
        any other amount, and AttemptEnded once the handler has ended. In a handler that uses the
        journal, charge inside a function that `context.step` calls: anything outside is repeated by
        other attempts."""
        if self._has_ended is not None and self._has_ended():
            raise AttemptEnded
        with _adding:
            try:
                charged_usd = written(MONEY.add(self._charged_usd, _amount(usd)))
                is_amount = self._charged_usd <= charged_usd <= MAX_CHARGE_USD
            except InvalidOperation:  # raised for NaN, too
                raise ValueError(f"`{usd}` is not an amount of US dollars") from None
            if not is_amount:
                raise ValueError(f"{usd} USD is below 0, or more than one attempt may cost")
            self._charged_usd = charged_usd

    @contextmanager
    def charging(self, so_far: Callable[[], Decimal]) -> Iterator[None]:
        """Charge for the block what it has cost by its end; a report made before that has what it has
        cost by then."""

        def accrued() -> Decimal:
            return written(min(so_far(), MONEY.subtract(MAX_CHARGE_USD, self._charged_usd)))

        self._accrued = accrued
        try:
            yield
        finally:
            with _adding:
                self._charged_usd = MONEY.add(self._charged_usd, accrued())
                self._accrued = None

    def _with_charges(self, calls: Spend | None) -> Spend | None:
        """Return what model calls used, with the charges added."""
        if not self._charged_usd and self._accrued is None:
            return calls
        usd = MONEY.add(self._charged_usd, self._accrued() if self._accrued else 0)
        if not usd:
            return calls
        calls = calls or NOTHING_SPENT
        cost_usd = MONEY.add(calls.cost_usd, usd)
        return calls.model_copy(update={"cost_usd": cost_usd, "charged_usd": usd})


def _amount(usd: Decimal | str | int | float) -> Decimal:
    """Return an amount as its decimal digits say, or raise InvalidOperation."""
    if isinstance(usd, bool):
        raise InvalidOperation
    if isinstance(usd, float):
        return MONEY.normalize(Decimal(float.__repr__(usd)).quantize(_NANO, ROUND_UP, MONEY))
    return MONEY.create_decimal(usd)
