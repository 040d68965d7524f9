"""Checks how far the machines' clocks differ, as far as servers report their time."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from hocket.cli.doctor.findings import Finding, Verdict, listed

MOST_S = 1.0
FAIR_S = 0.25
NAME = "clocks"
CURE = (
    "Synchronize the clock of every machine with chrony or systemd-timesyncd: deadlines "
    "set on one machine are enforced on others."
)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The time that a machine reported, and between which moments of our clock it did so (epoch s)."""

    of: str
    said_s: float
    asked_s: float
    heard_s: float

    @property
    def ahead_s(self) -> float:
        """The minimum by which it is ahead of this machine; negative if it is behind."""
        if self.said_s > self.heard_s:
            return self.said_s - self.heard_s
        return min(self.said_s - self.asked_s, 0.0)


def reading(of: str, said: str, asked_s: float, heard_s: float) -> list[ClockReading]:
    """Parse a reading from RFC 3339 text, as written by NATS; empty if it is not valid."""
    try:
        moment = datetime.fromisoformat(said)
    except ValueError:
        return []
    return [ClockReading(of, moment.timestamp(), asked_s, heard_s)]


def difference(readings: Iterable[ClockReading]) -> list[Finding]:
    """Report which machines' clocks differ from this one's; empty if no machine was heard."""
    ahead: dict[str, float] = {}
    for one in readings:  # of several readings of one machine, the smallest difference counts
        known = ahead.get(one.of)
        if known is None or abs(one.ahead_s) < abs(known):
            ahead[one.of] = one.ahead_s
    if not ahead:
        return []
    far = {of: by for of, by in ahead.items() if abs(by) >= FAIR_S}
    if not far:
        found = f"{listed(sorted(ahead))} within {FAIR_S:g} s of this machine's"
        return [Finding(NAME, Verdict.OK, found)]
    verdict = Verdict.FAILED if max(map(abs, far.values())) >= MOST_S else Verdict.NOTE
    said = (
        f"{of} is {abs(by):.1f} s {'ahead of' if by > 0 else 'behind'} this machine"
        for of, by in sorted(far.items())
    )
    return [Finding(NAME, verdict, listed(said), CURE)]
