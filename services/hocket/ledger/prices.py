"""The prices that a ledger knows to be in `hocket.price`,
so that a batch queries the table only for others."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any

from hocket.kit.process.clock import monotonic_ms
from hocket.ledger.records.record import COLUMNS, Record

MAX_PRICES = 10_000
"""The most prices remembered; beyond that, all are forgotten."""
REMEMBERED_MS = 600_000.0
"""How long prices are remembered before the table is queried again;
rows of a tenant may have been deleted."""
_ROW = [column.name for column in COLUMNS]
_WHOSE = itemgetter(*(_ROW.index(name) for name in ("tenant", "model", "backend")))
_AMOUNTS = itemgetter(
    *(
        _ROW.index(name)
        for name in (
            "input_usd_per_mtok",
            "output_usd_per_mtok",
            "cached_usd_per_mtok",
            "cache_write_usd_per_mtok",
            "request_usd",
        )
    )
)
_STARTED = _ROW.index("started_at")


class KnownPrices:
    """Prices already in the table, by tenant, model and backend."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[tuple[Decimal | None, ...]]] = {}
        self._size = 0
        self._since_ms = monotonic_ms()

    def unknown(self, calls: Sequence[Record]) -> Sequence[Record]:
        """Return, for each unknown price, the first call that used it."""
        if monotonic_ms() - self._since_ms > REMEMBERED_MS:
            self._forget()
        found: dict[tuple[Any, ...], Record] = {}
        for one in calls:
            row = one.row
            amounts = _AMOUNTS(row)
            # a linear search on purpose: comparing Decimals is much faster than hashing them
            if amounts in self._known.get(_WHOSE(row), ()):
                continue
            if not (amounts[0] or amounts[1] or amounts[-1]):
                continue
            price = (*_WHOSE(row), *amounts)
            first = found.get(price)
            if first is None or row[_STARTED] < first.row[_STARTED]:
                found[price] = one
        return list(found.values())

    def remember(self, calls: Iterable[Record]) -> None:
        """Remember the prices of calls after they were stored and committed."""
        for one in calls:
            if self._size >= MAX_PRICES:
                self._forget()
            self._known.setdefault(_WHOSE(one.row), []).append(_AMOUNTS(one.row))
            self._size += 1

    def _forget(self) -> None:
        self._known.clear()
        self._size = 0
        self._since_ms = monotonic_ms()
