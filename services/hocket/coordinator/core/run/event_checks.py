"""Plausibility checks on what a log event claims, made before it is applied.

Anyone who reaches NATS may post to a log. An event counts only if its run belongs to that partition
(the hash of its id), its names are well formed, its numbers lie within what the platform ever
produces, and the subjects that it names are of the kind that we publish to: an inbox, or the
acknowledgement of a task. Who may post an event is a separate question: see
`schemas/capabilities.py`.
"""

import re
from math import isfinite

from hocket.coordinator.core.run.state.charges import RESERVED
from hocket.schemas import ids, subjects
from hocket.schemas.messages import (
    AttemptFinished,
    AttemptReturned,
    CacheAnswered,
    LogEvent,
    OutlookChanged,
    RunAccepted,
    RunCharged,
    RunParent,
    TimerFired,
    Timing,
)
from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS
from hocket.schemas.pipeline.spec import MAX_TIMEOUT_MS

DAY_MS = 24 * 3_600_000.0
MAX_AHEAD_MS = DAY_MS
"""How far a sender's clock may be ahead of ours."""
MAX_BEHIND_MS = MAX_WAIT_MS + 30 * DAY_MS
"""How far in the past a reported time may lie."""
MAX_TOOK_MS = MAX_TIMEOUT_MS + DAY_MS
MAX_MEAN_MS = MAX_WAIT_MS + DAY_MS
MAX_VARIANCE = MAX_MEAN_MS**2
MAX_WEIGHT = 1e9
MAX_OUTLOOK_NODES = 2_000
MAX_DEPTH = 64
"""The most runs that an event may claim to be above its run; the plan's own bound is lower."""
_TASK_ACK = re.compile(
    rf"\$JS\.ACK\.([^.\s*>]+\.){{0,2}}({subjects.TASKS}|{subjects.TASK_BATCHES})\.[^\s*>]+"
)
_ACK_NUMBERS = 5


def doubt(event: LogEvent, *, partition: int, partitions: int, now_ms: float) -> str | None:
    """Return why an event of a partition's log cannot be genuine, or None if it can. `now_ms` is
    the log's own time."""
    if not isinstance(event, AttemptFinished) and isinstance(event, OutlookChanged):
        return _doubt_outlook(event)
    if ids.partition_of(event.run_id, partitions) != partition:
        return "its run belongs to another partition"
    if isinstance(event, (AttemptFinished, AttemptReturned)):
        return None if event.attempt >= 1 else "attempts start at 1"
    if isinstance(event, RunAccepted):
        return _doubt_acceptance(event, partitions, now_ms)
    if isinstance(event, TimerFired) and abs(event.due_at_ms - now_ms) > MAX_BEHIND_MS:
        return "no run waits for that time"
    if isinstance(event, CacheAnswered) and not event.key:
        return "it does not answer a question"
    return _doubt_charge(event) if isinstance(event, RunCharged) else None


def plausible(event: LogEvent, now_ms: float) -> LogEvent:
    """Return an event without reported times that cannot be right: the clock of the worker that ran
    an attempt may be years off, and its result counts all the same."""
    if not isinstance(event, AttemptFinished):
        return event
    earliest_ms, latest_ms = now_ms - MAX_BEHIND_MS, now_ms + MAX_AHEAD_MS
    began_ms, ended_ms, queued_ms = event.started_at_ms, event.finished_at_ms, event.queued_at_ms
    if (
        (not began_ms or earliest_ms <= began_ms <= latest_ms)
        and (not ended_ms or earliest_ms <= ended_ms <= latest_ms)
        and (not queued_ms or earliest_ms <= queued_ms <= latest_ms)
        and abs(ended_ms - began_ms) <= MAX_TOOK_MS
    ):
        timing = event.timing
        if timing is None or _is_possible(timing):
            return event
        return event.model_copy(update={"timing": None})
    unknown = {"started_at_ms": 0.0, "finished_at_ms": 0.0, "queued_at_ms": 0.0, "timing": None}
    return event.model_copy(update=unknown)


def _doubt_outlook(event: OutlookChanged) -> str | None:
    if not (subjects.TOKEN.fullmatch(event.tenant) and subjects.TOKEN.fullmatch(event.pipeline)):
        return "there is no such pipeline"
    if len(event.nodes) > MAX_OUTLOOK_NODES:
        return "it reports too many nodes"
    for node in event.nodes:
        numbers = (
            (node.mean_ms, MAX_MEAN_MS),
            (node.variance, MAX_VARIANCE),
            (node.weight, MAX_WEIGHT),
        )
        if not all(isfinite(number) and 0 <= number <= most for number, most in numbers):
            return f"no node can take that long: `{node.path[:80]}`"
    return None


def _doubt_charge(event: RunCharged) -> str | None:
    return None if event.source and event.source not in RESERVED else "it has no source"


def _doubt_acceptance(event: RunAccepted, partitions: int, now_ms: float) -> str | None:
    if not (subjects.TOKEN.fullmatch(event.tenant) and subjects.TOKEN.fullmatch(event.pipeline)):
        return "there is no such pipeline"
    if event.idempotency_key is not None and event.run_id != ids.run_id(
        event.tenant, event.idempotency_key
    ):
        return "its run does not match its key"
    if not -MAX_BEHIND_MS <= event.deadline_at_ms - now_ms <= MAX_WAIT_MS + MAX_AHEAD_MS:
        return "no task can have such a deadline"
    if event.task_ack is not None and not _is_task_ack(event.task_ack):
        return "`task_ack` does not acknowledge a task"
    if event.reply_to is not None and not subjects.is_inbox(event.reply_to):
        return "`reply_to` is not an inbox"
    return None if event.parent is None else _doubt_parent(event, event.parent, partitions)


def _doubt_parent(event: RunAccepted, parent: RunParent, partitions: int) -> str | None:
    if event.run_id != ids.child_run_id(parent.run_id, parent.step, parent.attempt):
        return "its run does not match its parent's step"
    if parent.partition != ids.partition_of(parent.run_id, partitions):
        return "its parent belongs to another partition"
    return None if 1 <= parent.depth <= MAX_DEPTH else "it has too many runs above it"


def _is_task_ack(subject: str) -> bool:
    numbers = subject.split(".")[-_ACK_NUMBERS:]
    return _TASK_ACK.fullmatch(subject) is not None and sum(map(str.isdecimal, numbers)) >= (
        _ACK_NUMBERS - 1
    )


def _is_possible(timing: Timing) -> bool:
    return all(0 <= spent_ms <= MAX_BEHIND_MS for _, spent_ms in timing)
