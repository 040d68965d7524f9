"""The critical path of a run that ends: the chain of steps that its end waited for, and where the
time on it went.

It is walked backward: from the step that ended last, through its attempts to the moment it became
ready, on to whatever last made it ready (a need, the round before, the item that made room, the
step it is a fallback of, the container around it), until the run's acceptance. Each piece of time
has one kind, and the pieces follow each other without gap or overlap: their sum is the run's time,
to the microsecond.

Times from different clocks meet here. Those of the log and the stream are the server's; what a
worker reports is taken as a duration (by its own clock), and its start is moved to where it fits
between the server's times. Where the log's own time goes back, the piece is empty.

The work is proportional to the steps on the path and what each of them waited for; in a map with
more items than its concurrency, every item is looked at once, and so are all attempts and calls of
a handler, however often the path comes back to it.
"""

from collections.abc import Sequence
from enum import StrEnum

from hocket.coordinator.core.run.plan.nodes import GRAPH, LEAF, LOOP, SUBRUN, WAIT
from hocket.coordinator.core.run.state.run import (
    CALL,
    CANCELLED,
    FALLBACK,
    ITEM,
    NODE,
    ROUND,
    PastAttempt,
    Run,
    ScopeProgress,
    Segment,
    Step,
)
from hocket.schemas.messages import Timing

MAX_SEGMENTS = 1_000
"""How many of the latest pieces are kept one by one; earlier ones are folded by node, attempt and
kind."""
_MAX_HOPS_PER_STEP = 4
_US_PER_MS = 1_000


class Kind(StrEnum):
    """What a run waited for."""

    COORDINATOR = "coordinator"
    """An event on its way into the log, or a decision on its way into the stream."""
    QUEUE = "queue"
    """Waiting for a slot in a worker: in the coordinator, in the stream of steps, or in the worker."""
    EXECUTION = "execution"
    """Running in a worker, with no model call in flight."""
    GATEWAY_QUEUE = "gateway_queue"
    MODEL = "model"
    BACKOFF = "backoff"
    CACHE = "cache"
    """Waiting for the cache's answer, or for another run that computed the same."""
    WAITING = "waiting"
    """Waiting for a person, an outside signal, a moment that a handler waits for, or its turn to
    start."""


(
    _COORDINATOR,
    _QUEUE,
    _EXECUTION,
    _GATEWAY_QUEUE,
    _MODEL,
    _BACKOFF,
    _CACHE,
    _WAITING,
) = (kind.value for kind in Kind)  # plain strings, at a third of the cost of enum members
_IN_A_CHILD = (
    _QUEUE,
    _BACKOFF,
    _CACHE,
    _WAITING,
    _GATEWAY_QUEUE,
    _MODEL,
    _EXECUTION,
)
"""The order in which the kinds of a sub-run's time are laid out, after the coordinators' part."""


def critical_path(run: Run, ended_at_ms: float) -> list[Segment]:
    """Return the critical path of a run whose steps have all ended, from its acceptance on."""
    return _Walk(run, ended_at_ms).path()


def timing_of(path: Sequence[Segment]) -> Timing | None:
    """Return the time on a path by kind; None for an empty path."""
    if not path:
        return None
    us = dict.fromkeys((kind.value for kind in Kind), 0)
    for segment in path:
        us[segment[3]] += segment[4]
    return Timing(**{f"{kind}_ms": time / _US_PER_MS for kind, time in us.items()})


class _Walk:
    """One walk backward. `_at` is its present position, in microseconds from the acceptance."""

    __slots__ = (
        "_accepted_at_ms",
        "_at",
        "_called",
        "_ended_at_ms",
        "_freed",
        "_path",
        "_run",
        "_tries_left",
    )

    def __init__(self, run: Run, ended_at_ms: float) -> None:
        self._run = run
        self._ended_at_ms = ended_at_ms
        self._accepted_at_ms = run.accepted_at_ms
        self._at: int = max(0, self._us(ended_at_ms))
        self._path: list[Segment] = []
        self._freed: dict[str, dict[float, Step]] = {}
        self._called: dict[str, list[Step]] = {}
        """The calls of handlers that ended no later than the present position, the latest last."""
        self._tries_left: dict[str, int] = {}
        """How many attempts of handlers the walk has not passed yet."""

    def path(self) -> list[Segment]:
        root = self._run.scope
        step = None if root is None else _last_of(root.steps, self._ended_at_ms)
        first = step
        for _ in range(_MAX_HOPS_PER_STEP * len(self._run.steps) + 1):
            if step is None:
                break
            first, step = step, self._through(step)
        if first is not None:
            limited = self._run.plan is not None and self._run.plan.flow
            self._back(0, first, 0, _WAITING if limited else _COORDINATOR)
        self._path.reverse()
        return _folded(self._path)

    def _through(self, step: Step) -> Step | None:
        """Walk back from the end of a step; return the step whose end comes next on the way back."""
        inner = step.fallbacks[-1] if step.fallbacks else _last_child(step, step.finished_at_ms)
        if inner is not None:
            return inner
        return self._own(step) or self._before(step)

    # ---- which step was waited for ----------------------------------------------------------

    def _before(self, step: Step) -> Step | None:
        """Return the step whose end made this one ready; None if that was the run's acceptance."""
        while True:
            parent = step.parent
            found = self._freed_by(step, parent)
            if found is not None or parent is None:
                return found
            if step.link == FALLBACK:
                inner = _last_child(parent, step.ready_at_ms) or self._own(parent)
                if inner is not None:
                    return inner
            elif step.link == CALL:
                inner = self._own(parent)
                if inner is not None:
                    return inner
            elif parent.emitted is not None and step.link == NODE:
                self._own(parent)
            step = parent

    def _freed_by(self, step: Step, parent: Step | None) -> Step | None:
        """Return the sibling that this step waited for; None if it began with its parent."""
        if step.link == NODE:
            return _latest_need(step, _scope_around(self._run, parent))
        assert parent is not None, step.key
        if step.link == ITEM:
            return self._frees(parent).get(step.ready_at_ms)
        if step.link == ROUND and step.index > 1:
            assert parent.children is not None, parent.key
            return parent.children.steps[step.index - 2]
        if step.link == FALLBACK:
            return _fallback_before(parent, step.index)
        return None

    def _frees(self, parent: Step) -> dict[float, Step]:
        """Return the items of a map by the moment at which they made room for another. Those that
        began and ended at the same moment are left out: they made room only at that moment."""
        found = self._freed.get(parent.key)
        if found is None:
            found = self._freed[parent.key] = {}
            assert parent.children is not None, parent.key
            for item in parent.children.steps:
                ended_at_ms = item.finished_at_ms
                if ended_at_ms is not None and ended_at_ms > item.ready_at_ms:
                    found[ended_at_ms] = item
        return found

    # ---- where a step's own time went ---------------------------------------------------------

    def _own(self, step: Step) -> Step | None:
        """Walk back over the attempts of a step to where it became ready, or to where it resumed
        because a call of its handler had ended; return the call's step in that case."""
        if step.role == WAIT:
            self._back(self._us(step.ready_at_ms), step, 0, _WAITING)
            return None
        left = self._tries_left.get(step.key, -1)
        if left < 0:
            left = len(step.tries)
            if step.dispatched_at_ms is not None and left < step.attempt:
                self._attempt(step, step.attempt, _present(step), cut=step.state == CANCELLED)
        for number in range(left, 0, -1):
            one = step.tries[number - 1]
            called = self._awaited(step, one)
            if called is not None:
                self._tries_left[step.key] = number
                return called
            kind = _WAITING if one.is_suspended else _BACKOFF
            self._back(self._us(one.finished_at_ms), step, number, kind)
            self._attempt(step, number, one, cut=False)
        ready = self._us(step.ready_at_ms)
        if self._at > ready:
            self._back(ready, step, 0, _COORDINATOR if step.node.cache is None else _CACHE)
        return None

    def _awaited(self, step: Step, one: PastAttempt) -> Step | None:
        """Of the calls for which a step was suspended after this attempt, return the one that ended
        last."""
        if not one.is_suspended or step.children is None:
            return None
        since = self._us(one.finished_at_ms)
        if since >= self._at:
            return None
        calls = self._called.get(step.key)
        if calls is None:
            calls = self._called[step.key] = _by_end(step.children.steps)
        while calls:
            ended_us = self._us(calls[-1].finished_at_ms or 0.0)
            if ended_us <= self._at:
                return calls[-1] if ended_us > since else None
            calls.pop()
        return None

    def _attempt(self, step: Step, number: int, one: PastAttempt, *, cut: bool) -> None:
        sent = min(max(0, self._us(one.dispatched_at_ms)), self._at)
        if step.role == SUBRUN:
            self._subrun(step, number, one.timing, sent, cut=cut)
            return
        if one.started_at_ms is None:
            # a cut-off attempt may have begun unseen; any other without a start never left the
            # queue
            self._back(sent, step, number, _EXECUTION if cut else _QUEUE)
            return
        stored = sent if one.queued_at_ms is None else self._us(one.queued_at_ms)
        stored = min(max(stored, sent), self._at)
        if one.took_ms is None:  # from a release that did not record it
            took = max(0, self._at - max(stored, self._us(one.started_at_ms)))
        else:
            took = min(round(one.took_ms * _US_PER_MS), self._at - stored)
        started = min(max(self._us(one.started_at_ms), stored), self._at - took)
        self._back(started + took, step, number, _COORDINATOR)
        if one.timing is not None:
            queued = min(round(one.timing.gateway_queue_ms * _US_PER_MS), took)
            called = min(round(one.timing.model_ms * _US_PER_MS), took - queued)
            self._back(started + queued + called, step, number, _EXECUTION)
            self._back(started + queued, step, number, _MODEL)
            self._back(started, step, number, _GATEWAY_QUEUE)
        else:
            self._back(started, step, number, _EXECUTION)
        self._back(stored, step, number, _QUEUE)
        self._back(sent, step, number, _COORDINATOR)

    def _subrun(
        self, step: Step, number: int, timing: Timing | None, sent: int, *, cut: bool
    ) -> None:
        if timing is not None:
            for kind in reversed(_IN_A_CHILD):
                us = round(getattr(timing, f"{kind}_ms") * _US_PER_MS)
                self._back(max(sent, self._at - us), step, number, kind)
        self._back(sent, step, number, _EXECUTION if cut else _COORDINATOR)

    def _back(self, to: int, step: Step, attempt: int, kind: str) -> None:
        """Walk back to a moment, unless it is at or after the present position."""
        if to < 0:
            to = 0
        if to >= self._at:
            return
        self._path.append((step.key, step.node.path, attempt, kind, self._at - to, 1))
        self._at = to

    def _us(self, at_ms: float) -> int:
        return round((at_ms - self._accepted_at_ms) * _US_PER_MS)


def _last_child(step: Step, ended_at_ms: float | None) -> Step | None:
    """Return the child, fallbacks apart, that ended last before this time."""
    role = step.role
    if step.emitted is not None or role == GRAPH:
        return None if step.scope is None else _last_of(step.scope.steps, ended_at_ms)
    if role in (LEAF, SUBRUN, WAIT) or step.children is None:
        return None
    steps = step.children.steps
    if role == LOOP:
        return steps[-1] if steps else None
    return _last_of(steps, ended_at_ms)


def _last_of(children: Sequence[Step | None], ended_at_ms: float | None) -> Step | None:
    """Return the child that ended last by itself. If its container was ended from outside (a
    timeout, the deadline, a cancellation), return the child that had been ready longest of those
    cut off."""
    last: Step | None = None
    last_at_ms = 0.0
    cut: Step | None = None
    for child in children:
        if child is None or child.finished_at_ms is None:
            continue
        if child.state == CANCELLED:
            if cut is None or (child.ready_at_ms, child.key) < (cut.ready_at_ms, cut.key):
                cut = child
        elif last is None or child.finished_at_ms > last_at_ms:
            last, last_at_ms = child, child.finished_at_ms
    if cut is None or (last is not None and ended_at_ms == last.finished_at_ms):
        return last
    return cut


def _by_end(calls: Sequence[Step]) -> list[Step]:
    """Return the calls that have ended, the one that ended last at the end; of several that ended
    together, the first of them."""
    ended = [called for called in reversed(calls) if called.finished_at_ms is not None]
    return sorted(ended, key=lambda called: called.finished_at_ms or 0.0)


def _latest_need(step: Step, around: ScopeProgress | None) -> Step | None:
    """Return the need of a node that ended last; of several that ended together, the first."""
    found: Step | None = None
    assert around is not None, step.key
    for place in step.node.needs:
        need = around.steps[place]
        assert need is not None, step.key
        if found is None or (need.finished_at_ms or 0.0) > (found.finished_at_ms or 0.0):
            found = need
    return found


def _scope_around(run: Run, parent: Step | None) -> ScopeProgress | None:
    return run.scope if parent is None else parent.scope


def _fallback_before(parent: Step, index: int) -> Step | None:
    """Return the fallback that was begun before the one with this number."""
    found: Step | None = None
    for fallback in parent.fallbacks or ():
        if fallback.index < index and (found is None or fallback.index > found.index):
            found = fallback
    return found


def _present(step: Step) -> PastAttempt:
    assert step.dispatched_at_ms is not None, step.key
    return PastAttempt(
        step.dispatched_at_ms,
        0.0,
        step.queued_at_ms,
        step.started_at_ms,
        step.took_ms,
        step.timing,
    )


def _folded(path: list[Segment]) -> list[Segment]:
    """Bound a long path: its beginning is reduced to one piece per node, attempt and kind."""
    if len(path) <= MAX_SEGMENTS:
        return path
    found: dict[tuple[str, int, str], Segment] = {}
    for step, node, attempt, kind, us, _ in path[:-MAX_SEGMENTS]:
        key = (node, attempt, kind)
        known = found.get(key)
        if known is None:
            found[key] = (step, node, attempt, kind, us, 1)
        else:
            found[key] = (known[0], node, attempt, kind, known[4] + us, known[5] + 1)
    return [*found.values(), *path[-MAX_SEGMENTS:]]
