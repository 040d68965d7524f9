"""What calls cost a run of which none of its steps tells: those of the gateway's HTTP door that name the
run, and those that name its sub-runs.

Each source tells the sum that it knows of. A source that is heard again after MAX_SOURCES others would
count twice: gateways begin a new one where they forgot a run or started anew, and the one that was
heard longest ago is put together with those before it.
"""

from decimal import Decimal
from typing import Final

from hocket.coordinator.core.run.state.run import Run
from hocket.schemas.messages import RunCharged

MAX_SOURCES: Final = 64
EARLIER: Final = "earlier"
"""Stands for sources that are put together."""
SUB_RUNS: Final = "sub-runs"
RESERVED: Final = (EARLIER, SUB_RUNS)
_NOTHING = Decimal(0)


def charge(run: Run, event: RunCharged) -> bool:
    """Take in what a source knows of, and tell whether it is news: what is no more than it told before,
    or of another tenant, changes nothing."""
    if event.tenant != run.tenant:
        return False
    charges = run.charges or {}
    if event.total_usd <= charges.get(event.source, _NOTHING):
        return False
    charges.pop(event.source, None)
    charges[event.source] = event.total_usd
    sources = [source for source in charges if source not in RESERVED]
    if len(sources) > MAX_SOURCES:
        charges[EARLIER] = charges.get(EARLIER, _NOTHING) + charges.pop(sources[0])
    run.charges = charges
    return True


def add_of_sub_run(run: Run, usd: Decimal) -> None:
    """Take in what was found to be spent beside the steps of a sub-run."""
    charges = run.charges or {}
    charges[SUB_RUNS] = charges.get(SUB_RUNS, _NOTHING) + usd
    run.charges = charges
