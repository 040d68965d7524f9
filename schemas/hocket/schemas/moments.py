"""Moments as requests give them: RFC 3339 with a zone, and nothing else that libraries would accept
(`0`, `2026-01-01`). And the moments at which a zone's clock shows local times, over changes of it."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import heappop, heappush
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

_FORM = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[-+][0-9]{2}:[0-9]{2})",
    re.ASCII,
)

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def _read(value: Any) -> Any:
    if isinstance(value, str) and _FORM.fullmatch(value):
        return value
    raise ValueError("it is not a time with a zone, as in 2026-12-31T23:59:59Z")


def _in_utc(value: datetime) -> datetime:
    """Return a moment in UTC; one that its zone puts out of range becomes the first or the last one."""
    try:
        value.astimezone(UTC)
    except OverflowError:
        return _FIRST if value.year == _FIRST.year else _LAST
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_read), AfterValidator(_in_utc)]

LocalTimes = Callable[[datetime], Iterator[datetime]]
"""Yields the local times after one, or before it, in this order. They have no zone."""


def shown_after(local_times: LocalTimes, moment: datetime, zone: tzinfo) -> Iterator[datetime]:
    """Yield, in UTC, the moments after one at which a zone's clock shows one of the local times: none
    for a time that a change of the clock skips, and two for one that it repeats."""
    local = moment.astimezone(zone)
    waiting: list[datetime] = []
    for one in local_times(_naive(local) - _set_back(local)):
        shown = _shown(one, zone)
        for found in shown:
            heappush(waiting, found)
        while waiting and shown and waiting[0] <= shown[0]:  # nothing that comes is earlier
            if (found := heappop(waiting)) > moment:
                yield found
    while waiting:
        if (found := heappop(waiting)) > moment:
            yield found


def shown_latest(local_times: LocalTimes, until: datetime, zone: tzinfo) -> datetime | None:
    """Return the latest such moment up to and including one; the local times go back."""
    local = until.astimezone(zone)
    latest: datetime | None = None
    for one in local_times(_naive(local) + _set_back(local) + timedelta(seconds=1)):
        shown = _shown(one, zone)
        for found in shown:
            if found <= until and (latest is None or found > latest):
                latest = found
        if shown and shown[-1] <= until:  # what comes before it is earlier
            break
    return latest


def _naive(local: datetime) -> datetime:
    return local.replace(tzinfo=None, fold=0)


def _set_back(local: datetime) -> timedelta:
    """Return by how much the clock is set back, if it shows this time twice."""
    once, again = (local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    return max(timedelta(0), again - once)


def _shown(local: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    """Return when a zone's clock shows a local time."""
    once = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    again = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if once > again:  # the clock skips it
        return ()
    return (once,) if once == again else (once, again)
