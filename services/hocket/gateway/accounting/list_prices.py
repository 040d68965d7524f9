"""List prices, from the package `genai-prices`, for backends of known providers that are configured
without prices.

Only endpoints that the package recognises by URL are looked up, so self-hosted servers never get a
provider's price. Configured prices always take precedence, even a price of 0. Without the package
(the extra `prices`), and for models it does not know, backends stay unpriced. The list is that of
the installed package; nothing is fetched. Prices that depend on the date are those valid when the
configuration is read.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import structlog

from hocket.gateway.core.budgets.price import Prices, believable, plain
from hocket.gateway.core.config.table import BackendSpec, RoutingTable

PACKAGE = "genai-prices"
_THOUSAND = Decimal(1_000)
_FIELDS = {
    "input_usd_per_mtok": "input_mtok",
    "output_usd_per_mtok": "output_mtok",
    "cached_usd_per_mtok": "cache_read_mtok",
    "cache_write_usd_per_mtok": "cache_write_mtok",
}

log = structlog.get_logger()

Look = Callable[[BackendSpec], Prices | None]


async def with_list_prices(table: RoutingTable) -> RoutingTable:
    """Return a table in which unpriced backends of known providers have the prices of the list."""
    wanted = [spec for spec in table.backends() if _may_be_listed(spec)]
    if not wanted:
        return table
    found = await asyncio.to_thread(_found, wanted)  # the list is slow to load
    if not found:
        return table
    for key, prices in found.items():
        log.info("backend_priced_by_list", backend=key, package=PACKAGE, **prices.known)
    models = {
        name: replace(model, backends=tuple(_priced(spec, found) for spec in model.backends))
        for name, model in table.models.items()
    }
    return replace(table, models=models)


def _may_be_listed(spec: BackendSpec) -> bool:
    return spec.kind in ("openai", "anthropic") and not spec.prices.priced


def _priced(spec: BackendSpec, found: Mapping[str, Prices]) -> BackendSpec:
    prices = found.get(spec.key) if _may_be_listed(spec) else None
    return spec if prices is None else replace(spec, prices=prices)


def _found(wanted: list[BackendSpec]) -> dict[str, Prices]:
    """Return the list prices of backends by replica key; none without the package."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return {}
    snapshot, found = get_snapshot(), {}
    for spec in wanted:
        try:
            _, model = snapshot.find_provider_model(spec.target, None, None, spec.base_url)
        except LookupError:
            continue
        prices = _prices(spec, model.get_prices(datetime.now(UTC)))
        if prices is not None and prices.priced:
            found[spec.key] = prices
    return found


def _prices(spec: BackendSpec, listed: Any) -> Prices | None:
    """Return list prices as Prices.

    If long prompts cost more per token, the price of short ones is used, and logged; a price that
    cannot be represented leaves the backend unpriced.
    """
    values: dict[str, Decimal | None] = {
        name: _base(getattr(listed, key)) for name, key in _FIELDS.items()
    }
    per_thousand = _base(listed.requests_kcount)
    values["request_usd"] = None if per_thousand is None else per_thousand / _THOUSAND
    known = {name: plain(value) for name, value in values.items() if value is not None}
    if not all(believable(value) for value in known.values()):
        return None
    cached = {"cached_usd_per_mtok", "cache_write_usd_per_mtok"}
    if known.keys() & cached and "input_usd_per_mtok" not in known:
        return None
    if any(hasattr(getattr(listed, key), "tiers") for key in _FIELDS.values()):
        cure = "configure `prices` if prompts are longer than the first tier"
        log.warning("list_price_has_tiers", backend=spec.key, cure=cure)
    return Prices(**known)


def _base(price: Any) -> Decimal | None:
    """Return a price, or that of its first tier."""
    base = getattr(price, "base", price)
    return base if isinstance(base, Decimal) else None
