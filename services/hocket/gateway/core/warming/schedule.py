"""Warm schedules: a cron expression says when a window begins, and `for_ms` how long it lasts.

An expression has five fields, or six with seconds first, in a time zone; daylight-saving changes
are handled as cron does.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from hocket.gateway.core.warming.warm_leases import Lease, Level
from hocket.schemas.moments import shown_after

MAX_WINDOW_MS = 7 * 24 * 3_600_000.0


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
            shown = shown_after(lambda local: CronSim(self.cron, local), moment, zone)
            return next(shown, None)
        found = (one.astimezone(UTC) for one in fixed)
        return next((one for one in found if one > moment), None)


def fault_of(cron: str) -> str | None:
    """Return what is wrong with a cron expression, or None."""
    try:
        next(CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        return str(error) or "it is not a cron expression"
    return None
