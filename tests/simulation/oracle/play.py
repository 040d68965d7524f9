"""A play under the eyes of the oracle."""

from simulation.oracle.shadow import Report, Shadow
from simulation.platform.scenario import play


def compared(seed: str) -> Report:
    """Play a seed; return what was compared, and what differs."""
    shadow = Shadow()
    outcome = play(seed, bug=shadow.watching)
    report = shadow.report
    report.counts["seeds"] += 1
    if outcome.violation is not None:
        report.counts["violations"] += 1
    return report
