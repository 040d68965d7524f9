"""`make monitoring-test`: a loaded platform and a real Prometheus that scrapes it.

The cause of each alert (of the named ones, or of all) is made to happen; the alert must fire then, and
not before. Afterwards every query of rules, dashboards and KEDA must return series, and the alerts must
end. Needs Debian's prometheus and its exporter for Postgres."""

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import structlog

from deploy.alert_causes import CAUSES, Cause, pipelines, repeated
from deploy.monitored_platform import MonitoredPlatform, keda_queries, missing
from deploy.test_monitoring import ALERTS, queries
from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable

HEALTHY_S = 15
BOUND_S = 120
LOOK_S = 0.5
COMPARED = re.compile(r"\s*(?:>|<|==)=?\s*[\d.]+\s*$")
OR_ZERO = re.compile(r"\((.+?) or .+ \* 0\)")
LONGEST = {"HocketDeadlinesMissedSlow"}
"""Its window is six hours, six minutes here: the play does not wait for it to end."""


def sides(query: str) -> list[str]:
    """Return what a rule compares, without the comparisons, because a rule that does not fire returns
    nothing; and without the zero that replaces missing series."""
    return [OR_ZERO.sub(r"\1", COMPARED.sub("", side)) for side in re.split(r"\s+and\s+", query)]


async def reads(at: MonitoredPlatform) -> None:
    """Read runs without pause."""
    while True:
        with suppress(ApiRefused, ApiUnreachable):
            await asyncio.to_thread(at.platform.api().get, "/v1/runs")
        await asyncio.sleep(1)


async def over(at: MonitoredPlatform, alerts: AbstractSet[str]) -> AbstractSet[str]:
    """Wait until these alerts, which the previous cause may have triggered as well, have ended; return
    those that have not."""
    until = time.monotonic() + BOUND_S
    while (on := alerts & await at.firing()) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    return on


async def fires(at: MonitoredPlatform, cause: Cause) -> list[str]:
    """Make something happen; return what is wrong with its alerts."""
    early = await over(at, cause.alerts)
    wrong = [f"{name} fires before: {cause.told}" for name in sorted(early)]
    began, left, took = time.monotonic(), set(cause.alerts), {}
    async with cause.happens(at):
        while left and time.monotonic() < began + BOUND_S:
            await asyncio.sleep(LOOK_S)
            for name in left & await at.firing():
                took[name] = time.monotonic() - began
                left.remove(name)
    for name, seconds in took.items():
        print(f"  {name} fires {seconds:.0f} s after: {cause.told}", flush=True)
    return [*wrong, *(f"{name} does not fire: {cause.told}" for name in sorted(left))]


async def unanswered(at: MonitoredPlatform) -> list[str]:
    """Return the queries that still return nothing when time is up."""
    asked = {**queries(), **keda_queries()}
    left = {f"{place}#{n}": side for place, q in asked.items() for n, side in enumerate(sides(q))}
    total, until = len(left), time.monotonic() + BOUND_S
    while left and time.monotonic() < until:
        for place, query in list(left.items()):
            if await at.query(query):
                del left[place]
        await asyncio.sleep(LOOK_S)
    print(f"{total - len(left)} of {total} queries return series")
    return [f"nothing: {place}: {query}" for place, query in left.items()]


async def play(at: MonitoredPlatform, only: set[str]) -> list[str]:
    for one in pipelines():
        await asyncio.to_thread(at.platform.api().post, "/v1/pipelines", one)
    async with AsyncExitStack() as stack:
        for name in ("interactive", "standard", "batch"):
            await stack.enter_async_context(repeated(at, f"sleep_{name}", 0.3))
        await stack.enter_async_context(repeated(at, "says", 0.5))
        reading = asyncio.create_task(reads(at))
        stack.callback(reading.cancel)
        await asyncio.sleep(HEALTHY_S)
        wrong = [f"{name} fires on a healthy platform" for name in await at.firing()]
        for cause in CAUSES:
            if not only or only & cause.alerts:
                wrong += await fires(at, cause)
        if not only:
            wrong += await unanswered(at)
        until = time.monotonic() + BOUND_S
        while (on := await at.firing() - LONGEST) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        return [*wrong, *(f"{name} does not end" for name in sorted(on))]


async def main() -> None:
    if names := missing():
        sys.exit(f"monitoring-test needs Debian's {', '.join(names)}: apt-get install them")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    assert set(ALERTS) == {name for cause in CAUSES for name in cause.alerts}, "one has no cause"
    with tempfile.TemporaryDirectory(prefix="hocket-monitoring-") as folder:
        async with MonitoredPlatform(Path(folder)) as at:
            wrong = await play(at, set(sys.argv[1:]))
    print("\n".join(wrong) or "each alert fired at its cause, and ended")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    asyncio.run(main())
