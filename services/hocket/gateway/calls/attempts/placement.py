"""Places a call at a replica, with room for it in its budgets."""

from collections.abc import Sequence

from hocket.gateway.accounting.reservations import NOT_SPENT
from hocket.gateway.calls.attempts.placement_request import placement_request
from hocket.gateway.calls.call import Call
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.capacity.slot import Slot
from hocket.gateway.core.budgets.budget import Reservation
from hocket.gateway.core.calls.request_content import WORST_OUTPUT_TOKENS, limited
from hocket.gateway.core.config.table import BackendSpec, ModelSpec
from hocket.gateway.core.errors import BudgetExceeded, ModelUnpriced, NoBackendSuits
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallRequest


async def placed(
    call: Call, model: ModelSpec, on: CallDependencies
) -> tuple[Slot | None, Reservation | None]:
    """Return a slot for a call, None if every replica was tried, and the call's reservation.

    The prices of a fallback count only if it gets the call: its slot is given back, and asked for again
    with a reservation at its prices. If that is refused, the call has no such fallback.
    """
    priced: Sequence[BackendSpec] = model.backends
    refusal: HocketError | None = None
    while True:
        try:
            reservation = await _reserved(call, priced, on)
        except (BudgetExceeded, ModelUnpriced) as error:
            if priced is model.backends:
                raise
            call.too_dear.add(priced[-1].key)
            priced, refusal = model.backends, error
            continue
        slot = await _slot(call, on, reservation, refusal)
        if slot is None or reservation is None:
            return slot, reservation
        if any(slot.spec.key == spec.key for spec in priced):
            return slot, reservation
        slot.release(unused=True)
        on.spending.settle(reservation, NOT_SPENT)
        priced = (*priced, slot.spec)


async def _slot(
    call: Call, on: CallDependencies, reservation: Reservation | None, refusal: HocketError | None
) -> Slot | None:
    """Return a slot; if there is none, settle the reservation, and raise why a fallback was refused, if
    one was."""
    request = placement_request(call, call.kind, on.scheduler)
    try:
        return await on.scheduler.place(request, call.cancellation)
    except BaseException as error:
        on.spending.settle(reservation, NOT_SPENT)
        if refusal is not None and isinstance(error, NoBackendSuits):
            raise refusal from None
        raise


async def _reserved(
    call: Call, priced: Sequence[BackendSpec], on: CallDependencies
) -> Reservation | None:
    return await on.spending.reserve(
        reserved_request(call.request, priced),
        call.kind,
        [spec.prices for spec in priced],
        call.cancellation,
    )


def reserved_request(request: CallRequest, backends: Sequence[BackendSpec]) -> CallRequest:
    """Return a call as money is to be reserved for it at backends: with the longest of the limits that
    they give it, if it sets none."""
    most = max((spec.answer_tokens for spec in backends), default=WORST_OUTPUT_TOKENS)
    return request if most == WORST_OUTPUT_TOKENS else limited(request, most)
