"""Nothing grows with the square of a run's size: work, memory, bytes to Postgres and bytes to the bus
are counted at n, 2n and 4n. Where they are linear, the second step costs twice the first; where they
are quadratic, four times."""

import gc
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic_core import to_json

from hocket.coordinator.core.run.beginning import accept
from hocket.coordinator.core.run.commands import StartSubRun, Wake
from hocket.coordinator.core.run.constructs.reuse import reuse_of
from hocket.coordinator.core.run.ends.critical_path import critical_path
from hocket.coordinator.core.run.machine import apply, resume
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.state.restore import StoredRun, restored
from hocket.coordinator.core.run.state.rows import run_row, step_row
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.duration_estimates import outlook
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.ids import input_digest
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    HandlerPlace,
    HandlerWait,
    NodeCall,
    Priority,
    RunAccepted,
    RunEvent,
    RunOrigin,
    SignalReceived,
    Spend,
    StepRequested,
    TimerFired,
)
from hocket.schemas.pipeline.plan import compile_pipeline
from support.run_player import OWNER, START_MS, Play, python, request_of, stored

N = 24
SOME = 40
"""For memory, where what is there at any size counts for more."""
MANY = 100
"""For what needs no profiler."""
BATCH = 16
"""Events whose changes one commit gathers."""
WORST = 2.6
"""2 is linear; n log n gives 2.3 at these sizes, a square 4."""
BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)

Answer = Callable[[StepRequested], tuple[Any, ErrorInfo | None]]


@dataclass
class Growth:
    """A run of one pipeline, and what it cost."""

    document: dict[str, Any]
    input: dict[str, Any]
    answer: Answer = lambda request: ({"v": 1}, None)
    signal: str = ""
    """The name of the signals that are sent when no worker has anything to do."""
    cancel_at: int = 10**9
    """The number of results after which the run is cancelled."""
    written_bytes: int = 0
    published_bytes: int = 0
    results: int = 0

    def play(self) -> Run:
        plan = compile_pipeline({"pipeline": "p", "slo_ms": 10_000_000} | self.document)
        self.plan = PipelinePlan(plan)
        self.forecast = PlanForecast(self.plan, outlook(plan, {}))
        self.now_ms = START_MS
        self.waiting: deque[StepRequested] = deque()
        self.wakes: list[float] = []
        self.dirty: dict[str, None] = {}
        self.dirty_run, self.first, self.events = False, True, 0
        accepted = RunAccepted(
            run_id="r1",
            tenant="t",
            pipeline="p",
            version=1,
            input=self.input,
            priority=Priority.STANDARD,
            deadline_at_ms=self.now_ms + 10_000_000,
        )
        forecast = self.forecast
        self._take(accept(accepted, self.plan, OWNER, now_ms=self.now_ms, forecast=forecast))
        for event in self._events():
            self._take(apply(self.run, event, self.now_ms, forecast))
        self._commit()
        return self.run

    def _events(self) -> Iterator[RunEvent]:
        signals = 0
        while not self.run.has_ended:
            self.now_ms += 1
            if self.results >= self.cancel_at:
                yield CancelRequested(run_id="r1")
            elif self.waiting:
                request = self.waiting.popleft()
                output, error = self.answer(request)
                self.results += 1
                yield AttemptFinished(
                    run_id="r1",
                    step=request.step,
                    attempt=request.attempt,
                    output=output,
                    error=error,
                    spend=Spend(cost_usd=Decimal("0.001")),
                )
            elif self.signal:
                signals += 1
                payload = {"approved": True}
                yield SignalReceived(
                    run_id="r1", signal_id=str(signals), name=self.signal, payload=payload
                )
            else:
                self.now_ms = max(self.now_ms, self.wakes.pop())
                yield TimerFired(run_id="r1", due_at_ms=self.now_ms)

    def _take(self, outcome: Outcome) -> None:
        self.run = outcome.run
        for command in outcome.commands:
            if isinstance(command, Dispatch):
                self.waiting.append(request_of(command))
                self.published_bytes += len(command.body(command.slack_ms, 0.0))
            elif isinstance(command, StartSubRun):
                self.published_bytes += len(to_json(command.accepted))
            elif isinstance(command, Wake):
                self.wakes.append(command.at_ms)
        for step in outcome.changed:
            step.is_changed = False
            self.dirty[step.key] = None
        self.dirty_run = self.dirty_run or outcome.run_changed
        self.events += 1
        if self.events % BATCH == 0:
            self._commit()

    def _commit(self) -> None:
        rows = [step_row("r1", self.run.steps[key]) for key in self.dirty]
        if self.dirty_run:
            rows.append(run_row(self.run, first=self.first))
        self.written_bytes += sum(len(str(row)) for row in rows)
        self.dirty.clear()
        self.dirty_run = self.first = False


ITEM = {"with": {"x": "{{ item }}"}}


def over_input(node: dict[str, Any], n: int, **more: Any) -> dict[str, Any]:
    mapped = {"map": {"over": "input.xs", "concurrency": n, "max_items": n} | more}
    return {"nodes": {"m": node | mapped}}


def list_of(n: int) -> dict[str, Any]:
    return {"xs": [f"item number {i}" for i in range(n)]}


def a_map_with_the_default_input(n: int) -> Growth:
    nodes = {"a": python(), "m": python(needs=["a"], map={"over": "input.xs", "max_items": n})}
    return Growth({"nodes": nodes}, list_of(n))


def a_map_whose_items_all_fail(n: int) -> Growth:
    document = over_input(python(), n, on_item_error="skip")
    return Growth(document, list_of(n), lambda request: (None, BUSY))


def a_map_whose_items_are_all_tried_again(n: int) -> Growth:
    document = over_input(python(retry={"max_attempts": 3, "backoff_ms": 50}), n)
    return Growth(document, list_of(n), lambda r: (1, None) if r.attempt == 3 else (None, BUSY))


def a_map_of_races(n: int) -> Growth:
    race = {"type": "race", "branches": {"a": python(), "b": python(), "c": python()}}
    return Growth(over_input(race, n), list_of(n))


def a_map_of_graphs_with_timeouts(n: int) -> Growth:
    inner = {"x": python(), "y": python(needs=["x"])}
    graph = {"type": "graph", "nodes": {"g": {"type": "graph", "nodes": inner, "timeout_ms": 1e6}}}
    return Growth(over_input(graph, n), list_of(n))


def a_map_of_fallbacks(n: int) -> Growth:
    graph = {
        "type": "graph",
        "nodes": {"x": python(handler="m:bad", fallback=[{"node": python()}])},
    }
    answer: Answer = lambda r: (1, None) if "!" in r.step else (None, BUSY)  # noqa: E731
    return Growth(over_input(graph, n), list_of(n), answer)


def a_map_of_planners(n: int) -> Growth:
    planner = {"type": "planning", "model": "m", "prompt": "?"}
    planner["emit"] = {"types": ["python"], "handlers": ["m:f"]}
    emitted = {"nodes": {"x": python()}}
    answer: Answer = lambda r: (emitted if r.type == "planning" else 1, None)  # noqa: E731
    return Growth(over_input(planner, n), list_of(n), answer)


def a_map_beside_an_approval_that_pauses(n: int) -> Growth:
    document = over_input(python(), n)
    document["nodes"]["ok"] = {"type": "approval"}
    return Growth(document, list_of(n), signal="ok")


def a_map_of_approvals(n: int) -> Growth:
    return Growth(over_input({"type": "approval"}, n), list_of(n), signal="m")


def a_map_that_is_cancelled(n: int) -> Growth:
    document = over_input(python(), n)
    return Growth(document, list_of(n), cancel_at=n // 2)


def a_loop(n: int) -> Growth:
    loop = {"until": f"round >= {n}", "max_rounds": n}
    return Growth({"nodes": {"l": python(loop=loop)}}, list_of(10))


def a_wide_scope(n: int) -> Growth:
    nodes: dict[str, Any] = {f"n{i}": python(needs=["first"]) for i in range(n)}
    nodes["first"] = python()
    nodes["last"] = python(needs=[f"n{i}" for i in range(n)])
    return Growth({"nodes": nodes}, {})


def a_chain(n: int) -> Growth:
    nodes = {f"n{i}": python(needs=[f"n{i - 1}"] if i else []) for i in range(n)}
    return Growth({"nodes": nodes}, {})


SHAPES = [
    a_map_with_the_default_input,
    a_map_whose_items_all_fail,
    a_map_whose_items_are_all_tried_again,
    a_map_of_races,
    a_map_of_graphs_with_timeouts,
    a_map_of_fallbacks,
    a_map_of_planners,
    a_map_beside_an_approval_that_pauses,
    a_map_of_approvals,
    a_map_that_is_cancelled,
    a_loop,
    a_wide_scope,
    a_chain,
]


def calls_of(work: Callable[[], Any]) -> int:
    """Count the calls of Python functions and of built-in ones, a measure of work without a clock."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # what it calls is not ours
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def peak_of(work: Callable[[], Any]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def steepness(costs: list[int]) -> float:
    """Return how many times what the first n more cost the next 2n cost: 2 where it is linear."""
    one, two, four = costs
    return (four - two) / max(1, two - one)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_work_grows_with_the_run_and_not_with_its_square(shape: Callable[[int], Growth]) -> None:
    shape(3).play()  # what is imported and compiled once
    costs = [calls_of(shape(n).play) for n in (N, 2 * N, 4 * N)]
    assert steepness(costs) < WORST, costs


KEPT = [a_map_of_planners, a_loop]
MORE = [a_map_with_the_default_input, a_map_of_races, a_wide_scope]


@pytest.mark.parametrize(
    "shape",
    [*KEPT, *(pytest.param(shape, marks=pytest.mark.long) for shape in MORE)],
    ids=lambda shape: shape.__name__,
)
def test_memory_grows_with_the_run_and_not_with_its_square(shape: Callable[[int], Growth]) -> None:
    shape(3).play()
    costs = [peak_of(shape(n).play) for n in (SOME, 2 * SOME, 4 * SOME)]
    assert steepness(costs) < WORST, costs


SIGNALLED = (a_map_of_approvals,)
"""Their run's row keeps the ids of the signals seen, the last thousand."""


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_bytes_grow_with_the_run_and_not_with_its_square(shape: Callable[[int], Growth]) -> None:
    plays = [shape(n) for n in (MANY, 2 * MANY, 4 * MANY)]
    for play in plays:
        assert play.play().has_ended
    published = [play.published_bytes for play in plays]
    assert steepness(published) < WORST, published
    if shape not in SIGNALLED:
        written = [play.written_bytes for play in plays]
        assert steepness(written) < WORST, written


def test_steps_that_are_held_back_share_what_their_node_says() -> None:
    said = "x" * 100_000
    node = {"type": "llm", "model": "m", "prompt": "{{ input.x }}", "system": said}
    play = Play(
        {"a": python()} | over_input(node | ITEM | {"needs": ["a"]}, SOME)["nodes"],
        input=list_of(SOME),
    )
    assert peak_of(partial(play.finish, "a", 1)) < 10 * len(said)
    assert len(play.dispatched) == SOME
    assert request_of(play.dispatched[0]).config["system"] == said


def test_taking_a_run_over_grows_with_the_run_and_not_with_its_square() -> None:
    costs = []
    for n in (N, 2 * N, 4 * N):
        growth = a_map_of_races(n)
        growth.cancel_at = 0
        growth._events = lambda: iter(())  # type: ignore[method-assign]
        run = growth.play()
        rows = stored(run)

        def take_over(rows: StoredRun = rows, growth: Growth = growth) -> None:
            resume(restored(rows, growth.plan, OWNER), START_MS, growth.forecast)

        costs.append(calls_of(take_over))
    assert steepness(costs) < WORST, costs


def a_run_that_called(times: int, at_once: int) -> Run:
    """Return an ended run whose handler called nodes again and again, some at a time."""
    play = Play({"a": python(calls={"look": python()}, max_calls=1_000)})
    journaled: tuple[HandlerPlace, ...] = ()
    for begun in range(0, times * at_once, at_once):
        numbers = range(begun + 1, begun + at_once + 1)
        waits = tuple(
            HandlerWait(ordinal=n, call=NodeCall(name="look", digest=input_digest(n), input=n))
            for n in numbers
        )
        play.now_ms += 1
        play.finish("a", waits=waits, journaled=journaled)
        play.now_ms += 1
        for n in numbers:
            play.finish(f"a/look-{n}", 1)
        journaled = tuple(HandlerPlace(ordinal=n) for n in numbers)
        if at_once > 1:  # it was resumed with the first, and asks for all of them
            play.finish("a", waits=waits, journaled=())
    play.finish("a", "done")
    assert play.run.status == "succeeded", play.run.error
    return play.run


@pytest.mark.parametrize("at_once", [1, 4])
def test_the_critical_path_of_a_handler_that_calls_grows_with_its_calls(at_once: int) -> None:
    costs = []
    for n in (N, 2 * N, 4 * N):
        run = a_run_that_called(n, at_once)
        costs.append(calls_of(partial(critical_path, run, run.finished_at_ms or 0.0)))
    assert steepness(costs) < WORST, costs


def test_what_a_repeat_takes_over_is_found_in_time_that_grows_with_the_run() -> None:
    costs = []
    for n in (N, 2 * N, 4 * N):
        saved = {"a": python(fallback=[{"node": python()}])}
        rounds = {"until": "false", "max_rounds": n, "on_exhausted": "accept"}
        mapped = over_input({"type": "graph", "nodes": saved}, n)
        mapped["nodes"]["l"] = python(needs=["m"], loop=rounds)
        answer: Answer = lambda r: (None, BUSY) if r.step.endswith("/a") else (1, None)  # noqa: E731
        growth = Growth(mapped, list_of(n), answer)
        origin = restored(stored(growth.play()), growth.plan, OWNER)
        asked = RunOrigin(run_id="r1", operation="rerun", from_step="l#1")
        found = reuse_of(origin, growth.plan, asked)
        assert len(found.kept) == 2 * n, "each item fails again, and its fallback serves"
        assert len(found.forced) == n
        costs.append(calls_of(partial(reuse_of, origin, growth.plan, asked)))
    assert steepness(costs) < WORST, costs


def test_a_map_whose_items_fail_as_they_begin_looks_at_each_once() -> None:
    costs = []
    for n in (3, MANY, 2 * MANY, 4 * MANY):
        document = over_input(python(**{"with": {"x": "{{ item.nope }}"}}), n)
        growth = Growth(document, list_of(n))
        costs.append(calls_of(growth.play))
        assert growth.run.status == "failed"
        assert len(growth.run.steps) == n + 1
    costs.pop(0)  # what is imported and compiled once
    assert steepness(costs) < WORST, costs


def test_a_node_whose_prompt_is_announced_looks_for_each_of_its_needs_once() -> None:
    costs = []
    for n in (3, MANY, 2 * MANY, 4 * MANY):
        needs = [f"n{i}" for i in range(n)]
        written = {"type": "llm", "model": "m", "prompt": "{{ input.n0 }}", "prefill": True}
        announced = {f"l{i}": written | {"needs": needs} for i in range(10)}
        play = Play({"a": python()} | {name: python(needs=["a"]) for name in needs} | announced)
        costs.append(calls_of(partial(play.finish, "a", 1)))
        assert len(play.dispatched) == n
    costs.pop(0)
    assert steepness(costs) < WORST, costs
