"""Figures about time for the page of a run. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from hocket.schemas.pipeline.spec import WAIT_TYPES
from hocket.schemas.rest import CriticalPath, RunCost, RunDetail, StepDetail

MAX_BLAMED = 3
DISPATCHED, WAITING = "dispatched", "waiting"
ATTEMPTS = frozenset({"leaf", "subrun"})
"""The roles of steps that make attempts, which no wait inside them gives more time."""
ONLY_ON_PATHS = frozenset({"coordinator", "backoff", "cache", "waiting"})
WIDTH = 1_000
"""The width of the bar of kinds of time, in its units."""


@dataclass(frozen=True, slots=True)
class PathPart:
    """A kind of time on the critical path, with its place on the bar."""

    kind: str
    ms: float
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class BurnDown:
    """A step within the time allowed for its run: where it waited, where it ran, and its deadline (in
    units of WIDTH), and how much time was left, negative if it missed its deadline. A step in progress
    counts as running since it was dispatched, because only its result tells when the worker began."""

    ready: float
    started: float
    ended: float
    deadline: float
    left_ms: float
    is_over: bool
    goes_on: bool
    """Whether its time goes on until the deadline that is known now."""


def burn_down(run: RunDetail, step: StepDetail, now: datetime) -> BurnDown | None:
    """Return how a step used the time until its deadline, or None if it has no deadline, or a wait may
    have moved that: a step keeps the deadline with which it began."""
    if step.deadline_at is None or _is_paused(run, step):
        return None
    allowed_s = max((run.deadline_at - run.accepted_at).total_seconds(), 0.001)
    ended = step.finished_at or run.finished_at or now

    def place(moment: datetime) -> float:
        passed = (moment - run.accepted_at).total_seconds() / allowed_s
        return round(WIDTH * min(max(passed, 0.0), 1.0), 1)

    handed_out = step.dispatched_at if step.state == DISPATCHED else None
    left_ms = (step.deadline_at - ended).total_seconds() * 1_000
    if left_ms < 0 and step.role not in ATTEMPTS:
        return None
    return BurnDown(
        ready=place(step.ready_at),
        started=place(max(step.ready_at, min(step.started_at or handed_out or ended, ended))),
        ended=place(max(step.ready_at, ended)),
        deadline=place(step.deadline_at),
        left_ms=left_ms,
        is_over=left_ms < 0,
        goes_on=not (step.finished_at or run.finished_at) and step.role in ATTEMPTS,
    )


def _is_paused(run: RunDetail, step: StepDetail) -> bool:
    """Tell whether no time goes on for a step, because it waits for someone or its run does."""
    if step.finished_at is not None or run.finished_at is not None:
        return False
    waits = step.type in WAIT_TYPES and step.state == WAITING
    return waits or run.deadline_paused_at is not None


def path_parts(path: CriticalPath | None) -> list[PathPart]:
    """Return the kinds of time on a path side by side, longest first."""
    if path is None:
        return []
    total = sum(path.by_kind.values()) or 1.0
    parts: list[PathPart] = []
    x = 0.0
    for kind, ms in path.by_kind.items():
        width = WIDTH * ms / total
        parts.append(PathPart(kind, ms, round(x, 2), round(width, 2)))
        x += width
    return parts


def critical_waits(path: CriticalPath | None) -> dict[str, list[tuple[str, float, float]]]:
    """Return the steps on a path, each with the waits that only the critical path knows: kind, start and
    length, in ms."""
    waits: dict[str, list[tuple[str, float, float]]] = {}
    for part in path.segments if path else ():
        of_step = waits.setdefault(part.step, [])
        if part.kind in ONLY_ON_PATHS and part.pieces == 1:
            of_step.append((part.kind, part.from_ms, part.ms))
    return waits


def longest_steps(path: CriticalPath | None) -> list[tuple[str, float]]:
    """Return the steps that took the most time on a path, in milliseconds."""
    spent: dict[str, float] = {}
    for part in path.segments if path else ():
        spent[part.step] = spent.get(part.step, 0.0) + part.ms
    return sorted(spent.items(), key=lambda one: -one[1])[:MAX_BLAMED]


def took_ms(run: RunDetail) -> float:
    """Return how long a run took, or has taken so far, in ms."""
    if run.duration_ms is not None:
        return run.duration_ms
    return (datetime.now(UTC) - run.accepted_at).total_seconds() * 1_000


def allowed_ms(run: RunDetail) -> float:
    """Return how long a run may take, in ms."""
    return (run.deadline_at - run.accepted_at).total_seconds() * 1_000


def is_late(run: RunDetail) -> bool:
    """Tell whether a run gave no result by its deadline, or is past it while it is not paused. One that
    was cancelled before is not late."""
    if run.finished_at is not None:
        was_cancelled = run.status == "cancelled" and run.finished_at <= run.deadline_at
        return run.met_deadline is False and not was_cancelled
    return run.deadline_paused_at is None and took_ms(run) > allowed_ms(run)


def spent_usd(run: RunDetail, cost: RunCost) -> Decimal:
    """Return what a run has spent. Only the ledger has the calls of steps in progress, and it is a
    moment behind."""
    return max(run.spent_usd, cost.cost_usd)


def queue_ms(step: StepDetail) -> float | None:
    """Return how long the last attempt of a step waited for a worker, in ms; None if it has not started.
    An attempt after the first began to wait when it was dispatched, as in traces."""
    since = step.ready_at if step.attempt <= 1 else step.dispatched_at
    if step.started_at is None or since is None:
        return None
    return max(0.0, (step.started_at - since).total_seconds() * 1_000)
