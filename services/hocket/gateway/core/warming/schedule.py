"""Warm schedules: a cron expression says when a window begins, and `for_ms` how long it lasts.

An expression has five fields, or six with seconds first, in a time zone; daylight-saving changes
are handled as cron does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from hocket.gateway.core.warming.warm_leases import Lease, Level
from hocket.schemas.moments import shown_after

MAX_WINDOW_MS = 7 * 24 * 3_600_000.0
CHECKED_FROM = datetime(2026, 1, 1, tzinfo=UTC)
"""From when an expression is searched for its first time."""
HORIZON = timedelta(days=51 * 366)
"""How far times are searched. The library gives up at the end of the 50th year without a time, but it
does not know which times a change of the clock skips."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Keeps a replica at a level for `for_ms` from each time that `cron` matches."""

    cron: str
    for_ms: float
    level: Level = Level.READY
    zone: str = "UTC"

    def leases(self, now_ms: float) -> tuple[Lease, ...]:
        """Return the window that is open, if any, and the next one."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        begins = {
            self._next_after(now - timedelta(milliseconds=self.for_ms)),
            self._next_after(now),
        }
        starts_ms = sorted(moment.timestamp() * 1000 for moment in begins if moment is not None)
        reason = f"schedule {self.cron}"
        return tuple(Lease(reason, self.level, at_ms, at_ms + self.for_ms) for at_ms in starts_ms)

    def _next_after(self, moment: datetime) -> datetime | None:
        zone = ZoneInfo(self.zone)
        fixed = CronSim(self.cron, moment.astimezone(zone))
        # over a clock change, the library's elapsed time leaves times out
        if fixed.fixup_tz is None:
            return next(shown_after(self._local_times, moment, zone), None)
        found = (one.astimezone(UTC) for one in fixed)
        return next((one for one in found if one > moment), None)

    def _local_times(self, local: datetime) -> Iterator[datetime]:
        """Yield the local times after one, up to HORIZON."""
        return takewhile(lambda one: one - local <= HORIZON, CronSim(self.cron, local))

    def fault(self) -> tuple[str, str] | None:
        """Return what is wrong with the expression in its zone, which exists, and the cure; or None."""
        try:
            if next(CronSim(self.cron, CHECKED_FROM), None) is None:
                return "no day matches it", "Choose a day that exists."
        except CronSimError as error:
            cure = "Write five fields, e.g. '0 8 * * 1-5' (or six, with seconds first)."
            return str(error) or "it is not a cron expression", cure
        if self._next_after(CHECKED_FROM) is None:
            reason = f"the clocks of {self.zone} skip all of its times"
            return reason, "Choose an hour that they do not skip, or another time zone."
        return None
