"""The prices that a ledger knows to be in `hocket.price`, and which of them is in force,
so that a batch queries the table only for others."""

from collections.abc import Iterable, Sequence
from datetime import datetime
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
    """Prices already in the table, by tenant, model and backend, and which of them is in force."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[tuple[Decimal | None, ...]]] = {}
        """The one in force is the first of each list."""
        self._in_force_at: dict[tuple[str, ...], datetime] = {}
        self._size = 0
        self._since_ms = monotonic_ms()

    def not_in_force(self, calls: Sequence[Record]) -> Sequence[Record]:
        """Return, for each price that is unknown, or that a later call used than the one in force, the
        first such call and the last."""
        if monotonic_ms() - self._since_ms > REMEMBERED_MS:
            self._forget()
        found: dict[tuple[Any, ...], list[Record]] = {}
        for one in calls:
            if not self._needs_nothing(one):
                found.setdefault((*_WHOSE(one.row), *_AMOUNTS(one.row)), []).append(one)
        return [
            one
            for used in found.values()
            for one in sorted(used, key=_started)[:: len(used) - 1 or 1]
        ]

    def _needs_nothing(self, call: Record) -> bool:
        """Tell whether a call's price is nothing, in force, or was superseded by one after the call."""
        whose, amounts = _WHOSE(call.row), _AMOUNTS(call.row)
        known = self._known.get(whose, ())
        if (known and amounts == known[0]) or not (amounts[0] or amounts[1] or amounts[-1]):
            return True
        # a linear search on purpose: comparing Decimals is much faster than hashing them
        return amounts in known and _started(call) <= self._in_force_at[whose]

    def remember(self, calls: Iterable[Record]) -> None:
        """Remember the prices of calls after they were stored and committed."""
        for one in sorted(calls, key=_started):
            if self._size >= MAX_PRICES:
                self._forget()
            whose, amounts = _WHOSE(one.row), _AMOUNTS(one.row)
            known = self._known.setdefault(whose, [])
            if amounts not in known:
                known.append(amounts)
                self._size += 1
            if whose not in self._in_force_at or _started(one) > self._in_force_at[whose]:
                known.remove(amounts)
                known.insert(0, amounts)
                self._in_force_at[whose] = _started(one)

    def _forget(self) -> None:
        self._known.clear()
        self._in_force_at.clear()
        self._size = 0
        self._since_ms = monotonic_ms()


def _started(call: Record) -> datetime:
    at: datetime = call.row[_STARTED]
    return at
