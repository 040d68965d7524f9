"""What becomes of the runs that wait at one gate with one key, given which runs passed it before.

A pure rule over what was read under the lock of the pipeline, so that nobody else decides at the
same time. Times are the database's (epoch ms). Runs are ordered by their acceptance, then by their
ids.

A rule by which the newest run decides (`debounce`, `singleton` with `cancel`) needs all waiting runs
for that. While more wait than are decided together, those before the newest are refused, and only
then is it decided about: so a run that is not the newest never passes, nor replaces another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError

MAX_AT_ONCE = 100
"""How many runs of one key are decided together."""


class FlowRateLimited(HocketError):
    """{limit} runs with its key have already started within {per_s} s. Start it again in {retry_s} s,
    or raise `flow.rate_limit.limit`; `flow.throttle` lets runs wait instead."""

    code = "flow_rate_limited"
    error_class = ErrorClass.CANCELLED


class FlowDebounced(HocketError):
    """Run {by} with the same key arrived within {wait_s} s and starts instead of this one."""

    code = "flow_debounced"
    error_class = ErrorClass.CANCELLED


class FlowSingletonSkipped(HocketError):
    """Run {by} with the same key was in progress. Start this one again after that has ended, or use
    `flow.singleton.mode: cancel`."""

    code = "flow_singleton_skipped"
    error_class = ErrorClass.CANCELLED


class FlowSingletonReplaced(HocketError):
    """Run {by} with the same key arrived and runs instead of this one."""

    code = "flow_singleton_replaced"
    error_class = ErrorClass.CANCELLED


class Waiting(NamedTuple):
    """A run that waits. `since_ms`: when the first of the runs arrived that were put off for it
    (`debounce`)."""

    run_id: str
    gate: int
    accepted_at_ms: float
    since_ms: float
    rule: Mapping[str, Any]


@dataclass(slots=True)
class Passed:
    """What passed with this key: how many runs that have not ended, one of them, and when runs
    started (ascending)."""

    held: int = 0
    holder: str = ""
    starts: Sequence[float] = ()


@dataclass(slots=True)
class Decision:
    """What becomes of the waiting runs. `replaced`: runs in flight to be cancelled, and for which
    run each; `put_off`: runs that keep waiting, and since when; `next_at_ms`: when time alone lets
    another one pass."""

    passed: list[Waiting] = field(default_factory=list)
    refused: list[tuple[Waiting, ErrorInfo]] = field(default_factory=list)
    replaced: list[tuple[str, str]] = field(default_factory=list)
    put_off: list[tuple[Waiting, float]] = field(default_factory=list)
    next_at_ms: float | None = None


def room(kind: str, rule: Mapping[str, Any], passed: Passed, now_ms: float) -> int:
    """Return how many of the waiting runs must be examined, if the first of them has this rule."""
    if kind == "concurrency":
        left = int(rule["limit"]) - passed.held
    elif kind == "throttle":
        left = int(rule["limit"]) - len(_within(passed.starts, rule, now_ms))
    else:
        return MAX_AT_ONCE + 1
    return max(0, min(MAX_AT_ONCE, left))


def decide(kind: str, waiting: Sequence[Waiting], passed: Passed, now_ms: float) -> Decision:
    """Decide about the first waiting runs, in their order: as many as `room` returned, or all."""
    if not waiting:
        return Decision()
    if kind == "concurrency":
        return _concurrency(waiting, passed)
    if kind == "throttle":
        return _throttle(waiting, passed, now_ms)
    if kind == "rate_limit":
        return _rate_limit(waiting, passed, now_ms)
    if kind == "debounce":
        return _debounce(waiting, now_ms)
    return _singleton(waiting, passed)


def newest_first(kind: str, rule: Mapping[str, Any]) -> bool:
    """Tell whether the newest waiting runs decide, in case not all can be read at once."""
    return kind == "debounce" or rule.get("mode") == "cancel"


def throttled_until(rule: Mapping[str, Any], passed: Passed, now_ms: float) -> float | None:
    """Return when a rate limit has room again (epoch ms); None if it has room now."""
    starts = _within(passed.starts, rule, now_ms)
    over = len(starts) - rule["limit"]
    return None if over < 0 else starts[over] + 1_000 * rule["per_s"]


def _concurrency(waiting: Sequence[Waiting], passed: Passed) -> Decision:
    decision = Decision()
    for one in waiting:
        if passed.held + len(decision.passed) >= one.rule["limit"]:
            break
        decision.passed.append(one)
    return decision


def _throttle(waiting: Sequence[Waiting], passed: Passed, now_ms: float) -> Decision:
    decision = Decision()
    starts = list(passed.starts)
    for one in waiting:
        until_ms = throttled_until(one.rule, Passed(starts=starts), now_ms)
        if until_ms is not None:
            decision.next_at_ms = until_ms
            break
        decision.passed.append(one)
        starts.append(now_ms)
    return decision


def _rate_limit(waiting: Sequence[Waiting], passed: Passed, now_ms: float) -> Decision:
    decision = Decision()
    starts = list(passed.starts)
    for one in waiting:
        until_ms = throttled_until(one.rule, Passed(starts=starts), now_ms)
        if until_ms is None:
            decision.passed.append(one)
            starts.append(now_ms)
            continue
        retry_s = round(max(0.0, until_ms - now_ms) / 1_000, 3)
        error = FlowRateLimited(limit=one.rule["limit"], per_s=one.rule["per_s"], retry_s=retry_s)
        decision.refused.append((one, error.info()))
    return decision


def _debounce(waiting: Sequence[Waiting], now_ms: float) -> Decision:
    decision = Decision()
    *before, newest = waiting
    for one in before:
        error = FlowDebounced(by=newest.run_id, wait_s=newest.rule["wait_s"])
        decision.refused.append((one, error.info()))
    since_ms = min(one.since_ms for one in waiting)
    if len(waiting) > MAX_AT_ONCE:  # others may wait that were not read
        if since_ms < newest.since_ms:
            decision.put_off.append((newest, since_ms))
        return decision
    due_ms = newest.accepted_at_ms + 1_000 * newest.rule["wait_s"]
    if "max_wait_s" in newest.rule:
        due_ms = min(due_ms, since_ms + 1_000 * newest.rule["max_wait_s"])
    if due_ms <= now_ms:
        decision.passed.append(newest)
        return decision
    if since_ms < newest.since_ms:
        decision.put_off.append((newest, since_ms))
    decision.next_at_ms = due_ms
    return decision


def _singleton(waiting: Sequence[Waiting], passed: Passed) -> Decision:
    decision = Decision()
    *before, newest = waiting
    if newest.rule["mode"] == "cancel":
        for one in before:
            error = FlowSingletonReplaced(by=newest.run_id)
            decision.refused.append((one, error.info()))
        if len(waiting) > MAX_AT_ONCE:
            return decision
        if passed.held:
            decision.replaced.append((passed.holder, newest.run_id))
        else:
            decision.passed.append(newest)
        return decision
    holder = passed.holder if passed.held else None
    for one in waiting:
        if holder is None:
            decision.passed.append(one)
            holder = one.run_id
        else:
            decision.refused.append((one, FlowSingletonSkipped(by=holder).info()))
    return decision


def _within(starts: Sequence[float], rule: Mapping[str, Any], now_ms: float) -> Sequence[float]:
    """Return the starts that still count."""
    since_ms = now_ms - 1_000 * rule["per_s"]
    return [at_ms for at_ms in starts if at_ms > since_ms]
