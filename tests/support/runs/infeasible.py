"""Pipelines whose deadline cannot be met, and helpers to observe their steps."""

from typing import Any

from hocket.coordinator.core.run.commands import CancelAttempt
from hocket.schemas.messages import TimerFired
from support.run_player import START_MS, Play, python

DEGRADE = {"slo_ms": 10_000, "on_infeasible": "degrade"}
FAIL = {"slo_ms": 10_000, "on_infeasible": "fail"}


def takes(mean_ms: float, sd_ms: float = 0, **fields: Any) -> dict[str, Any]:
    return python(expect={"mean_ms": mean_ms, "sd_ms": sd_ms}, **fields)


def draft(**fields: Any) -> dict[str, Any]:
    """Return a pipeline with a first step, a slow node that has a fast variant, and a step after it."""
    slow = takes(4_000, needs=["a"], fast=takes(500, 100)) | fields
    return {"a": takes(1_000), "draft": slow, "end": takes(1_000, needs=["draft"])}


def pass_to(play: Play, at_ms: float) -> None:
    """Let time pass, and fire every wake-up that was requested."""
    while play.wakes and min(play.wakes) <= START_MS + at_ms and not play.run.has_ended:
        due_ms = min(play.wakes)
        play.wakes.remove(due_ms)
        play.now_ms = max(play.now_ms, due_ms)
        play.send(TimerFired(run_id="r1", due_at_ms=due_ms))
    play.now_ms = START_MS + at_ms


def cancelled(play: Play) -> list[tuple[str, int]]:
    return [(c.step, c.attempt) for c in play.commands if isinstance(c, CancelAttempt)]
