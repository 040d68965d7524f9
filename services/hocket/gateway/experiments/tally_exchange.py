"""Exchanges counts among gateways: `tally.<experiment>.<gateway>` in their bucket,
written at most every TELL_S."""

import asyncio
from typing import Any

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.experiments.rollback_rule import Rate, Seen
from hocket.gateway.core.routing.membership_records import TALLY
from hocket.gateway.experiments.arms import ArmKey, Arms, TrackedArm

TELL_S = 0.25


class TallyExchange:
    """Publishes this gateway's counts, and reads those of the others."""

    def __init__(self, arms: Arms, membership: Membership) -> None:
        self._arms = arms
        self._membership = membership
        self._told: dict[str, Any] = {}
        self._told_at_s = float("-inf")
        self._forgetting: set[str] = set()
        self._writing: set[asyncio.Task[Any]] = set()

    def tell(self) -> None:
        """Publish this gateway's counts if they have changed."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_at_s < TELL_S:
            return
        for experiment in self._arms.experiments():
            content = {
                arm.name: _counts(self._arms[experiment.name, arm.name]) for arm in experiment.arms
            }
            key = f"{TALLY}{experiment.name}.{self._membership.name}"
            overwritten = self._membership.is_overwritten(key)
            if self._told.get(experiment.name) != content or overwritten:
                self._told[experiment.name] = content
                self._told_at_s = now_s
                task = asyncio.create_task(self._write(experiment.name, key, content))
                self._writing.add(task)
                task.add_done_callback(self._writing.discard)

    def hear(self) -> None:
        """Read the counts that other gateways published for the same arms."""
        heard: dict[ArmKey, dict[str, tuple[int, Seen]]] = {}
        for key, _, content in self._membership.told(TALLY):
            name, _, gateway = key.partition(".")
            if gateway == self._membership.name:
                continue
            if gateway not in self._membership.live:
                self._forget(TALLY + key)
                continue
            for arm, counts in content.items() if isinstance(content, dict) else ():
                tracked = self._arms.get((name, arm))
                if tracked is not None and (parsed := _parsed(counts, tracked)) is not None:
                    heard.setdefault((name, arm), {})[gateway] = parsed
        for arm_key, tracked in self._arms.items():
            tracked.others = heard.get(arm_key, {})

    async def _write(self, name: str, key: str, content: dict[str, Any]) -> None:
        if await self._membership.put(key, content) is None:
            self._told.pop(name, None)  # NATS is unreachable: publish again later

    def _forget(self, key: str) -> None:
        """Delete the counts of a dead gateway."""
        if self._membership.leads and key not in self._forgetting:
            self._forgetting.add(key)
            task = asyncio.create_task(self._membership.put(key, None))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
            task.add_done_callback(lambda _: self._forgetting.discard(key))


def _counts(tracked: TrackedArm) -> list[Any]:
    seen = tracked.tally.seen
    rates = [[one.bad, one.of] for one in (seen.errors, seen.slow, seen.outcomes)]
    return [tracked.identity, tracked.epoch, tracked.tally.calls, *rates]


def _parsed(counts: Any, tracked: TrackedArm) -> tuple[int, Seen] | None:
    """Return the calls and rates that another gateway published for this arm; None if they are for
    a different one."""
    try:
        identity, epoch, calls, *rates = counts
        if identity != tracked.identity or epoch != tracked.epoch:
            return None
        errors, slow, outcomes = (Rate(int(bad), int(of)) for bad, of in rates)
        return int(calls), Seen(errors, slow, outcomes)
    except (TypeError, ValueError):
        return None
