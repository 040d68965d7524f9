"""The times of a cron expression in a time zone. Pure: it reads no clock.

When clocks change, the rules of Debian's cron apply. A fixed time of day that is skipped by the change
fires right after it, and one that occurs twice fires only the first time. If minute or hour begins with
`*`, the expression follows elapsed time: nothing is added, and an hour that occurs twice fires twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from hocket.schemas import ids
from hocket.schemas.administration.schedules import CRON_FIELDS
from hocket.schemas.errors import InvalidInput
from hocket.schemas.moments import shown_after, shown_latest

LONGEST_REPEAT = timedelta(hours=3)
"""Longer than the time that any clock change repeats."""
OTHER_CLOCKS = ("localtime", "posixrules", "posix/", "right/")
"""Beside the zones of the IANA database: the machine's own, copies, and clocks with leap seconds."""
CLOSEST = timedelta(minutes=1)
"""The smallest possible distance between two times of an expression."""
CHECKED_FROM = datetime(2026, 1, 2, tzinfo=UTC)
"""From when an expression is searched for its first time; it is the same year in all zones."""
HORIZON = timedelta(days=51 * 366)
"""How far times are searched, and how far ahead they are listed. The library gives up at the end of the
50th year without a time, but it does not know which times a change of the clock skips."""


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a schedule. `seed` determines the jitter. Raises InvalidInput if the expression or
    the zone is not valid."""

    cron: str
    zone: str
    jitter_s: float = 0.0
    seed: str = ""

    def check(self, field: str = "") -> None:
        """Raise InvalidInput if the expression or the zone is not valid; the error's field begins with
        `field`."""
        try:
            if self.zone.startswith(OTHER_CLOCKS):
                raise KeyError(self.zone)
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError):
            raise InvalidInput(
                field=f"{field}time_zone",
                reason=f"there is no time zone `{self.zone}`",
                cure="Write a name from the IANA database, such as Europe/Berlin.",
            ) from None
        try:
            first = self.next_after(CHECKED_FROM)
        except CronSimError as error:
            raise InvalidInput(
                field=f"{field}cron",
                reason=_reason_of(error),
                cure=f"Write {CRON_FIELDS}.",
            ) from None
        if first is not None:
            return
        if next(CronSim(self.cron, CHECKED_FROM), None) is None:
            raise InvalidInput(
                field=f"{field}cron",
                reason="no day matches it",
                cure="Choose a day that exists.",
            )
        raise InvalidInput(
            field=f"{field}cron",
            reason=f"the clocks of {self.zone} skip all of its times",
            cure="Choose an hour that they do not skip, or another time zone.",
        )

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the times after a moment, in UTC."""
        last, zone = moment, ZoneInfo(self.zone)
        fixed = CronSim(self.cron, moment.astimezone(zone))
        # over a clock change, the library's elapsed time leaves times out
        if fixed.fixup_tz is None:
            yield from shown_after(self._local_times, moment, zone)
            return
        for local in fixed:
            found = local.astimezone(UTC)
            if found > last:  # the first of two equal hours may be over
                yield found
                last = found

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment, or None if there is none within 50 years."""
        return next(self.after(moment), None)

    def latest(self, until: datetime) -> datetime | None:
        """Return the latest time up to and including a moment."""
        zone = ZoneInfo(self.zone)
        fixed = CronSim(self.cron, (until + LONGEST_REPEAT).astimezone(zone), reverse=True)
        if fixed.fixup_tz is None:
            return shown_latest(self._local_times_before, until, zone)
        found = (one.astimezone(UTC) for one in fixed)
        return next((one for one in found if one <= until), None)

    def _local_times(self, local: datetime) -> Iterator[datetime]:
        """Yield the local times after one, up to HORIZON."""
        return takewhile(lambda one: one - local <= HORIZON, CronSim(self.cron, local))

    def _local_times_before(self, local: datetime) -> Iterator[datetime]:
        """Yield the local times before one, the latest first, back to HORIZON."""
        found = CronSim(self.cron, local, reverse=True)
        return takewhile(lambda one: local - one <= HORIZON, found)

    def due_at(self, planned_at: datetime) -> datetime:
        """Return when a time is due: delayed by its jitter, but before the next time."""
        return self._delayed(planned_at, self.next_after(planned_at) if self.jitter_s else None)

    def _delayed(self, planned_at: datetime, following: datetime | None) -> datetime:
        """Return when a time is due, of which the next one is known (None if there is none)."""
        most_s = self.jitter_s
        if following is not None:
            most_s = min(most_s, (following - planned_at).total_seconds())
        share = ids.fraction("jitter", self.seed, planned_at.isoformat())
        return planned_at + timedelta(seconds=share * most_s)

    def coming(self, moment: datetime, count: int) -> tuple[datetime, ...]:
        """Return the first times after a moment, up to HORIZON."""
        near = takewhile(lambda one: one - moment <= HORIZON, self.after(moment))
        return tuple(islice(near, count))

    def coming_and_due(self, moment: datetime, count: int) -> tuple[tuple[datetime, datetime], ...]:
        """Return the first times after a moment, up to HORIZON, each with when it is due."""
        found = self.coming(moment, count)
        due = [self._delayed(one, following) for one, following in pairwise(found)]
        return tuple(zip(found, [*due, *map(self.due_at, found[-1:])], strict=True))

    def local(self, moment: datetime) -> str:
        """Return a moment in local time to the second, with the offset from UTC."""
        return moment.astimezone(ZoneInfo(self.zone)).isoformat(timespec="seconds")


def _reason_of(error: CronSimError) -> str:
    """Return why an expression is refused: the library names the field, as in `Bad day-of-month`."""
    bad, _, field = str(error).partition(" ")
    if bad != "Bad" or not field:
        return "it is not a cron expression"
    if field == "day-of-month":
        return "its day of the month is not valid, or not in its months"
    return f"its {field.replace('day-of-', 'day of the ')} is not valid"
