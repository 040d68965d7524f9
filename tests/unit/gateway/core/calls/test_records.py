"""What a usage record books of an attempt: all that its backend charges, and nothing else."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.calls.records import usage_record
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import CallStopped, DeadlinePassed
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import Completion
from support.gateway.routing_rig import request

PRICES = Prices(
    Decimal(3), Decimal(15), Decimal("0.30"), Decimal("0.01"), cache_write_usd_per_mtok=Decimal(4)
)
USED = Completion(
    input_tokens=1_000_000, output_tokens=100_000, cached_tokens=500_000, cache_write_tokens=250_000
)
COST_USD = Decimal("3.41")  # 0.25 at 3, 0.5 at 0.30, 0.25 at 4, 0.1 at 15, and a cent


def recorded(completion: Completion = USED, error: HocketError | None = None, **spec: Any) -> Any:
    backend = BackendSpec("b", **{"kind": "openai", "target": "m", "prices": PRICES, **spec})
    return usage_record(
        request(), backend, completion, error, suffix="", started_ms=1.0, latency_ms=2.0
    )


def test_everything_that_was_metered_is_booked_at_its_price() -> None:
    record = recorded()
    assert (record.cost_usd, record.status, record.unpriced) == (COST_USD, "ok", False)


def test_a_failed_call_is_booked_if_anything_was_metered() -> None:
    failed = recorded(error=DeadlinePassed(late_ms=1))
    assert (failed.cost_usd, failed.status) == (COST_USD, "error")
    assert recorded(error=CallStopped(reason="gone")).status == "cancelled"
    nothing = recorded(Completion(), DeadlinePassed(late_ms=1))
    assert (nothing.cost_usd, nothing.request_usd) == (0, Decimal("0.01"))
    assert recorded(Completion()).cost_usd == Decimal("0.01"), (
        "a request that succeeded has a price"
    )


@pytest.mark.parametrize(
    ("spec", "is_unpriced"),
    [
        ({}, False),
        ({"prices": Prices()}, True),
        ({"prices": Prices(Decimal(0))}, False),
        ({"prices": Prices(), "kind": "function"}, False),
    ],
)
def test_a_call_is_unpriced_where_nobody_said_what_it_costs(
    spec: dict[str, Any], is_unpriced: bool
) -> None:
    assert recorded(**spec).unpriced is is_unpriced


@pytest.mark.parametrize(
    ("cached", "written", "booked"), [(50_000, 7, (10, 0)), (4, 50_000, (4, 6)), (4, 5, (4, 5))]
)
def test_what_a_prompt_cache_gave_is_part_of_the_input_as_it_is_billed(
    cached: int, written: int, booked: tuple[int, int]
) -> None:
    used = Completion(input_tokens=10, cached_tokens=cached, cache_write_tokens=written)
    record = recorded(used)
    assert (record.input_tokens, record.cached_tokens, record.cache_write_tokens) == (10, *booked)
