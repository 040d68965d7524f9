"""The times of a cron expression in a time zone. Pure: no clock is asked.

Where clocks change, the rule is Debian's cron's. A fixed time of the day that a change leaves out comes
right after the change, and one that comes twice counts once, at first. Where minute or hour begin with
`*`, the expression goes by the time that passes: nothing is added, and an hour that comes twice counts
twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from hocket.schemas import ids
from hocket.schemas.errors import InvalidInput

LONGEST_REPEAT = timedelta(hours=3)
"""More than what a change of the clock repeats."""
CLOSEST = timedelta(minutes=1)
"""How near to each other the times of an expression may be."""


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a schedule; raises InvalidInput where its expression or its zone are none.
    `seed` decides about the jitter."""

    cron: str
    zone: str
    jitter_s: float = 0.0
    seed: str = ""

    def check(self, field: str = "") -> None:
        """Raise InvalidInput, which names the field below `field`."""
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError):
            raise InvalidInput(
                field=f"{field}time_zone",
                reason=f"there is no time zone `{self.zone}`",
                cure="Write a name of the IANA database, such as Europe/Berlin.",
            ) from None
        try:
            first = next(CronSim(self.cron, datetime(2026, 1, 1, tzinfo=UTC)), None)
        except CronSimError as error:
            raise InvalidInput(
                field=f"{field}cron",
                reason=str(error) or "it is not a cron expression",
                cure="Write minute, hour, day of the month, month and day of the week, as in "
                "`30 6 * * 1-5`.",
            ) from None
        if first is None:
            raise InvalidInput(
                field=f"{field}cron",
                reason="no day fits it",
                cure="Choose a day that there is.",
            )

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the times after a moment, in UTC."""
        last = moment
        for local in CronSim(self.cron, moment.astimezone(ZoneInfo(self.zone))):
            found = local.astimezone(UTC)
            if found > last:  # the first of two equal hours may be over
                yield found
                last = found

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment; None where there is none within 50 years."""
        return next(self.after(moment), None)

    def latest(self, until: datetime) -> datetime | None:
        """Return the latest time until a moment, itself included."""
        start = (until + LONGEST_REPEAT).astimezone(ZoneInfo(self.zone))
        found = (one.astimezone(UTC) for one in CronSim(self.cron, start, reverse=True))
        return next((one for one in found if one <= until), None)

    def due_at(self, planned_at: datetime) -> datetime:
        """Return when a time is due: later by its jitter, but before the time that follows."""
        if not self.jitter_s:
            return planned_at
        following = self.next_after(planned_at)
        most_s = self.jitter_s
        if following is not None:
            most_s = min(most_s, (following - planned_at).total_seconds())
        share = ids.fraction("jitter", self.seed, planned_at.isoformat())
        return planned_at + timedelta(seconds=share * most_s)

    def coming(self, moment: datetime, count: int) -> tuple[datetime, ...]:
        """Return the first times after a moment."""
        return tuple(islice(self.after(moment), count))

    def local(self, moment: datetime) -> str:
        """Return a moment as clocks of the zone show it, with the difference to UTC."""
        return moment.astimezone(ZoneInfo(self.zone)).isoformat()
