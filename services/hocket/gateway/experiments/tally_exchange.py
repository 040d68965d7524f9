"""Exchanges counts among gateways: `tally.<experiment>.<gateway>` in their bucket,
written at most every TELL_S."""

import asyncio
from typing import Any

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.experiments.rollback_rule import Rate, Seen
from hocket.gateway.core.routing.membership_records import TALLY
from hocket.gateway.experiments.arms import ArmKey, Arms, Reported, TrackedArm

TELL_S = 0.25
Counts = dict[str, tuple[str, int, Reported]]
"""What a gateway published: the identity and epoch of each arm, and what it observed of it."""


class TallyExchange:
    """Publishes this gateway's counts, and reads those of the others."""

    def __init__(self, arms: Arms, membership: Membership) -> None:
        self._arms = arms
        self._membership = membership
        self._told: dict[str, Any] = {}
        self._told_at_s = float("-inf")
        self._read: dict[str, tuple[int, Counts]] = {}
        """What each other gateway published, by key, with its revision."""
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
        heard: dict[ArmKey, dict[str, Reported]] = {}
        read: dict[str, tuple[int, Counts]] = {}
        for key, revision, content in self._membership.told(TALLY):
            name, _, gateway = key.partition(".")
            if gateway == self._membership.name:
                continue
            if gateway not in self._membership.live:
                self._forget(TALLY + key)
                continue
            known = self._read.get(key)
            if known is None or known[0] != revision:
                known = revision, _parsed(content)
            read[key] = known
            for arm, (identity, epoch, reported) in known[1].items():
                tracked = self._arms.get((name, arm))
                if tracked is not None and (identity, epoch) == (tracked.identity, tracked.epoch):
                    heard.setdefault((name, arm), {})[gateway] = reported
        self._read = read
        for arm_key, tracked in self._arms.items():
            others = heard.get(arm_key, {})
            tracked.unjudged |= others != tracked.others
            tracked.others = others

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
    by_tenant = tracked.tally.seen
    in_all = _numbers(sum(by_tenant.values(), Seen()))
    pairs = [in_all[0:2], in_all[2:4], in_all[4:6]]
    told = {tenant: _numbers(seen) for tenant, seen in by_tenant.items()}
    return [tracked.identity, tracked.epoch, tracked.tally.calls, *pairs, told]


def _numbers(seen: Seen) -> list[int]:
    return [
        number for one in (seen.errors, seen.slow, seen.outcomes) for number in (one.bad, one.of)
    ]


def _parsed(content: Any) -> Counts:
    """Return the counts that another gateway published, by arm, without those that cannot be read."""
    found: Counts = {}
    for arm, counts in content.items() if isinstance(content, dict) else ():
        try:
            identity, epoch, calls, _, _, _, told = counts
            by_tenant = {
                tenant: Seen(*map(Rate, map(int, numbers[0:6:2]), map(int, numbers[1:6:2])))
                for tenant, numbers in told.items()
            }
            found[arm] = str(identity), int(epoch), Reported(int(calls), by_tenant)
        except (AttributeError, TypeError, ValueError):
            continue
    return found
