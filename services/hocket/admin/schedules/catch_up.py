"""Decides by the catch-up policy what to do with a schedule's due times. Pure.

A time is missed once it is more than ON_TIME_S overdue. The policy `none` skips all missed times, `one`
submits only the latest due time, and `all` submits each. Times older than the window are skipped.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from hocket.admin.schedules.times import Times
from hocket.schemas.administration.schedules import CatchUp

ON_TIME_S = 30.0
"""How long a due time counts as on time."""
MAX_AT_ONCE = 100
"""Times of one schedule decided at once; the rest follow at the next look."""


@dataclass(frozen=True, slots=True)
class Missed:
    """All missed times from the first to the last."""

    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Due:
    """The decision: the times to submit, `late` if they are caught up on, the missed times, and in
    `planned_at` the next time, None if there is none."""

    times: tuple[datetime, ...]
    late: bool
    missed: Missed | None
    planned_at: datetime | None


def due(times: Times, policy: CatchUp, window_s: float, planned_at: datetime, now: datetime) -> Due:
    """Decide about the due time `planned_at`, and those after it that are due as well."""
    overdue = now - timedelta(seconds=ON_TIME_S)
    if times.due_at(planned_at) > overdue:
        return Due((planned_at,), False, None, times.next_after(planned_at))
    begin = now - timedelta(seconds=window_s)
    if policy == "none":
        return _left_out(times, planned_at, _last_due(times, planned_at, overdue))
    if policy == "one":
        last = _last_due(times, planned_at, now)
        if last < begin:
            return _left_out(times, planned_at, last)
        before = times.latest(last - timedelta(microseconds=1)) if last > planned_at else None
        missed = None if before is None else Missed(planned_at, before)
        late = times.due_at(last) <= overdue
        return Due((last,), late, missed, times.next_after(last))
    if planned_at < begin:
        last = times.latest(begin - timedelta(microseconds=1)) or planned_at
        return _left_out(times, planned_at, last)
    return _all(times, planned_at, overdue)


def _left_out(times: Times, first: datetime, last: datetime) -> Due:
    return Due((), True, Missed(first, last), times.next_after(last))


def _last_due(times: Times, first: datetime, now: datetime) -> datetime:
    """Return the latest due time, but at least the first one."""
    found = times.latest(now)
    if found is not None and times.due_at(found) > now:
        found = times.latest(found - timedelta(microseconds=1))
    return first if found is None or found < first else found


def _all(times: Times, first: datetime, overdue: datetime) -> Due:
    late, planned_at = [first], times.next_after(first)
    while planned_at is not None and len(late) < MAX_AT_ONCE:
        if times.due_at(planned_at) > overdue:
            break
        late.append(planned_at)
        planned_at = times.next_after(planned_at)
    return Due(tuple(late), True, None, planned_at)
