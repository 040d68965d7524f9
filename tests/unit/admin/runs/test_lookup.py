"""A run that was submitted a moment ago is waited for, wherever it is read; its values are read only
where they are sent or taken over."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.admin.console.run.call import console_call
from hocket.admin.console.run.compare import console_compare
from hocket.admin.console.run.data import console_run_graph, console_timeline, console_trace
from hocket.admin.console.run.page import console_run
from hocket.admin.console.run.step import console_step
from hocket.admin.live.endpoints import follow_run
from hocket.admin.logs.endpoints import show_logs
from hocket.admin.runs import lookup, reads
from hocket.admin.runs.comparison_endpoint import compare_runs
from hocket.admin.runs.endpoints import (
    cancel_run,
    list_steps,
    rerun_run,
    retry_run,
    show_cost,
    show_journal,
    show_run,
    signal_run,
)
from hocket.admin.runs.recent import RecentRuns
from hocket.admin.traces.endpoints import show_trace
from hocket.schemas.errors import RunUnknown

RUN = "r" + "1" * 24
CALLER: Any = SimpleNamespace(
    tenant="acme", sees_content=True, bearer=SimpleNamespace(may=lambda _: True)
)
REQUEST: Any = None
RESPONSE: Any = None
SIGNAL: Any = None
Endpoint = Callable[[Any], Awaitable[Any]]
WITHOUT_VALUES: dict[str, Endpoint] = {
    "steps": lambda context: list_steps(RUN, context, CALLER),
    "journal": lambda context: show_journal(RUN, context, CALLER),
    "events": lambda context: follow_run(RUN, REQUEST, context, CALLER),
    "cancellation": lambda context: cancel_run(RUN, context, CALLER),
    "signal": lambda context: signal_run(RUN, SIGNAL, context, CALLER),
    "cost": lambda context: show_cost(RUN, context, CALLER),
    "logs": lambda context: show_logs(RUN, context, CALLER),
    "trace": lambda context: show_trace(RUN, context, CALLER),
    "comparison": lambda context: compare_runs(RUN, context, CALLER, RUN),
    "console": lambda context: console_run(REQUEST, RUN, context, CALLER),
    "console-step": lambda context: console_step(REQUEST, RUN, "a", context, CALLER),
    "console-call": lambda context: console_call(REQUEST, RUN, "c", context, CALLER),
    "console-trace": lambda context: console_trace(RUN, context, CALLER),
    "console-timeline": lambda context: console_timeline(REQUEST, RUN, context, CALLER),
    "console-graph": lambda context: console_run_graph(RUN, context, CALLER),
    "console-comparison": lambda context: console_compare(REQUEST, context, CALLER, RUN, RUN),
}
WITH_VALUES: dict[str, Endpoint] = {
    "run": lambda context: show_run(RUN, context, CALLER),
    "retry": lambda context: retry_run(RUN, RESPONSE, context, CALLER),
    "rerun": lambda context: rerun_run(RUN, RESPONSE, context, CALLER),
}


class WasFound(Exception):
    """The run's row was returned; what follows does not matter here."""


class LatePool:
    """A database in which the run appears after the first time it is read."""

    def __init__(self) -> None:
        self.reads: list[bool] = []

    async def fetchrow(self, query: str, *values: Any, timeout: float) -> None:
        if query != reads.ONE_RUN:
            return
        self.reads.append(values[-1])
        if len(self.reads) > 1:
            raise WasFound

    async def fetch(self, *_: Any, timeout: float) -> list[Any]:
        """No calls: a call may name a run that is not stored, and is shown by itself."""
        return []


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "APPEAR_INTERVAL_S", 0)


@pytest.mark.parametrize("name", [*WITHOUT_VALUES, *WITH_VALUES])
async def test_a_run_that_was_submitted_a_moment_ago_is_waited_for(name: str) -> None:
    pool, recent = LatePool(), RecentRuns()
    recent.add("acme", RUN)
    with pytest.raises(WasFound):
        await (WITHOUT_VALUES | WITH_VALUES)[name](SimpleNamespace(pool=pool, recent=recent))
    assert pool.reads == [name in WITH_VALUES] * 2


@pytest.mark.parametrize("name", [*WITHOUT_VALUES, *WITH_VALUES])
async def test_another_run_is_unknown_at_once(name: str) -> None:
    pool, places = LatePool(), SimpleNamespace(place=lambda _: nullcontext())
    context = SimpleNamespace(pool=pool, recent=RecentRuns(), long_reads=places)
    with pytest.raises(RunUnknown):
        await (WITHOUT_VALUES | WITH_VALUES)[name](context)
    assert len(pool.reads) == 1
