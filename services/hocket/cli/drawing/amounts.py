"""Formats times, money and counts for people."""

from contextlib import suppress
from datetime import datetime
from decimal import Decimal

MS_PER_MINUTE = 60_000
MS_PER_HOUR = 3_600_000
MS_PER_DAY = 86_400_000


def duration(ms: float | None) -> str:
    """Format a duration in a fitting unit: `0.4 ms`, `83 ms`, `1.24 s`, `2 min 03 s`."""
    if ms is None:
        return "-"
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < 9.95:
        return f"{ms:.1f} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_995:
        return f"{ms / 1000:.2f} s"
    if ms < MS_PER_HOUR - 500:
        minutes, seconds = divmod(round(ms / 1000), 60)
        return f"{minutes} min {seconds:02d} s"
    if ms < MS_PER_DAY - 30_000:
        hours, minutes = divmod(round(ms / MS_PER_MINUTE), 60)
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(round(ms / MS_PER_HOUR), 24)
    return f"{days} d {hours:02d} h"


def money(usd: Decimal | str | None) -> str:
    """Format US dollars with all significant digits and at least two decimals."""
    if usd is None:
        return "-"
    amount = Decimal(usd).normalize()
    decimals = max(2, -int(amount.as_tuple().exponent))
    return f"${amount:,.{decimals}f}"


def count(number: int) -> str:
    """Format an integer with its thousands separated."""
    return f"{number:,}"


def moment(text: str | None) -> datetime | None:
    """Parse an RFC 3339 text."""
    return None if text is None else datetime.fromisoformat(text)


def local(text: str | None) -> str:
    """Format a moment in the user's time zone, to the second; in its own one at the ends of the
    calendar, where the user's has no such day."""
    at = moment(text)
    if at is None:
        return "-"
    with suppress(OverflowError):
        at = at.astimezone()
    return at.strftime("%Y-%m-%d %H:%M:%S")


def local_clock(text: str) -> str:
    """Format the time of day of a moment in the user's time zone, to the millisecond."""
    return datetime.fromisoformat(text).astimezone().strftime("%H:%M:%S.%f")[:-3]


def between_ms(start: str | None, end: str | None) -> float | None:
    """Return the milliseconds between two RFC 3339 texts, or None if one is missing."""
    first, last = moment(start), moment(end)
    if first is None or last is None:
        return None
    return (last - first).total_seconds() * 1000
