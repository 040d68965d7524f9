"""Flow control in a play: which of its runs wait to start, and which do not start at all.

The coordinator's own rule decides about the runs of the play, which are all the runs there are: the one
that is played, and its sub-runs. As each is accepted by itself, it is decided about by itself, in the
order in which they are started."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from hocket.coordinator.core.flow.decisions import (
    Decision,
    Passed,
    Waiting,
    decide,
    newest_first,
    room,
    throttled_until,
)
from hocket.coordinator.core.run.commands import FlowPlace
from hocket.coordinator.core.run.state.run import Run
from hocket.schemas.messages import CancelRequested, FlowDecided
from hocket.schemas.pipeline.flow.spec import MAX_STARTS
from hocket.testing.stand_ins.clock import PlayLoop

BY = "flow control"
RATES = ("rate_limit", "throttle")
LEAST_WAIT_MS = 0.001
"""A timer is set for at least this long: times are rounded, so one may be due a little too early."""


class _Gate(NamedTuple):
    """A limit of a pipeline, for the runs of one key."""

    pipeline: str
    kind: str
    key: str


@dataclass(slots=True)
class _Queue:
    """The runs at a gate, in the order in which they were accepted; when runs have passed it."""

    waiting: dict[str, Waiting] = field(default_factory=dict)
    passed: dict[str, None] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class PlayedFlow:
    """Decides about the runs of one play. Decisions are passed to `happens`."""

    def __init__(
        self, loop: PlayLoop, happens: Callable[[FlowDecided | CancelRequested], None]
    ) -> None:
        self._loop = loop
        self._happens = happens
        self._queues: dict[_Gate, _Queue] = {}
        self._places: dict[str, list[tuple[_Gate, FlowPlace]]] = {}
        """The gates that each run passes, one after the other."""

    def enter(self, run: Run, places: tuple[FlowPlace, ...]) -> None:
        """Let a run wait at the first of its gates."""
        of_run = [(_Gate(run.pipeline, one.kind, one.key), one) for one in places]
        self._places[run.run_id] = of_run
        gate, place = of_run[0]
        at_ms = run.accepted_at_ms
        self._wait(gate, Waiting(run.run_id, 0, at_ms, at_ms, place.rule))

    def leave(self, run_id: str) -> None:
        """Free the places of a run that has ended."""
        for gate, _ in self._places.pop(run_id, ()):
            queue = self._queues.get(gate)
            if queue is not None:
                queue.waiting.pop(run_id, None)
                queue.passed.pop(run_id, None)
                self._decide(gate)

    def _wait(self, gate: _Gate, one: Waiting) -> None:
        self._queues.setdefault(gate, _Queue()).waiting[one.run_id] = one
        self._decide(gate)

    def _decide(self, gate: _Gate) -> None:
        """Decide about the runs that wait at a gate, until nothing changes before time has passed."""
        queue = self._queues[gate]
        while queue.waiting:
            now_ms = self._loop.now_ms()
            rule = next(iter(queue.waiting.values())).rule
            passed = Passed(len(queue.passed), next(iter(queue.passed), ""), queue.starts)
            most = room(gate.kind, rule, passed, now_ms)
            if most == 0:
                if gate.kind == "throttle":
                    self._decide_at(gate, throttled_until(rule, passed, now_ms))
                return
            decision = decide(gate.kind, _first(gate, queue, most), passed, now_ms)
            self._carry_out(gate, decision, now_ms)
            if not decision.passed and not decision.refused:
                return

    def _carry_out(self, gate: _Gate, decision: Decision, now_ms: float) -> None:
        queue = self._queues[gate]
        for one, error in decision.refused:
            del queue.waiting[one.run_id]
            self._happens(FlowDecided(run_id=one.run_id, refused=error))
        for run_id, by in decision.replaced:
            reason = f"run {by} of the same key arrived"
            self._happens(CancelRequested(run_id=run_id, reason=reason, by=BY))
        for one, since_ms in decision.put_off:
            queue.waiting[one.run_id] = one._replace(since_ms=since_ms)
        for one in decision.passed:
            del queue.waiting[one.run_id]
            queue.passed[one.run_id] = None
            if gate.kind in RATES:
                queue.starts.append(now_ms)
                del queue.starts[:-MAX_STARTS]
        self._decide_at(gate, decision.next_at_ms)
        for one in decision.passed:
            self._go_on(one)

    def _go_on(self, one: Waiting) -> None:
        """Let a run that has passed a gate wait at its next one, or start."""
        number = one.gate + 1
        places = self._places[one.run_id]
        if number == len(places):
            self._happens(FlowDecided(run_id=one.run_id))
            return
        gate, place = places[number]
        at_ms = one.accepted_at_ms
        self._wait(gate, Waiting(one.run_id, number, at_ms, at_ms, place.rule))

    def _decide_at(self, gate: _Gate, at_ms: float | None) -> None:
        """Decide again at a time, unless it is None."""
        queue = self._queues[gate]
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        if at_ms is not None:
            in_ms = max(LEAST_WAIT_MS, at_ms - self._loop.now_ms())
            queue.timer = self._loop.call_later(in_ms / 1000, self._decide, gate)


def _first(gate: _Gate, queue: _Queue, most: int) -> list[Waiting]:
    """Return the runs to decide about: the newest or the oldest, but oldest first."""
    oldest = iter(queue.waiting.values())
    if newest_first(gate.kind, next(iter(queue.waiting.values())).rule):
        oldest = islice(oldest, max(0, len(queue.waiting) - most), None)
    return list(islice(oldest, most))
