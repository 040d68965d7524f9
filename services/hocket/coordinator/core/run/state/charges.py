"""What a run's calls cost that none of its steps reports: calls through the gateway's HTTP door
that name the run or its sub-runs (`Run.charges`), and calls of its own of which no reply told the
cost (`Run.untold`): they were stopped, lost a hedge, or were prefills.

Reports take the former from the ledger, by their ids; the latter are in the run's `spent_usd`, like
what steps report.

Each source reports its running total. A source that reports again after MAX_SOURCES others would
count twice: gateways begin a new source when they have forgotten a run or were restarted, and the
one heard from longest ago is merged with those before it.
"""

from decimal import Decimal
from typing import Final

from hocket.coordinator.core.run.state.run import Run
from hocket.schemas.messages import RunCharged

MAX_SOURCES: Final = 64
EARLIER: Final = "earlier"
"""The key under which old sources are merged."""
SUB_RUNS: Final = "sub-runs"
RESERVED: Final = (EARLIER, SUB_RUNS)
_NOTHING = Decimal(0)


def charge(run: Run, event: RunCharged) -> Decimal:
    """Record a source's total, and return what of it is news: a total that is no higher than before,
    or that is of another tenant, changes nothing."""
    if event.tenant != run.tenant:
        return _NOTHING
    charges = dict((run.untold if event.untold else run.charges) or {})
    news_usd = event.total_usd - charges.pop(event.source, _NOTHING)
    if news_usd <= 0:
        return _NOTHING
    charges[event.source] = event.total_usd
    sources = [source for source in charges if source not in RESERVED]
    if len(sources) > MAX_SOURCES:
        charges[EARLIER] = charges.get(EARLIER, _NOTHING) + charges.pop(sources[0])
    if event.untold:
        run.untold = charges
        run.spent_usd += news_usd
    else:
        run.charges = charges
    return news_usd


def add_of_sub_run(run: Run, usd: Decimal) -> None:
    """Add what was found to be spent outside the steps of a sub-run."""
    charges = dict(run.charges or {})
    charges[SUB_RUNS] = charges.get(SUB_RUNS, _NOTHING) + usd
    run.charges = charges
