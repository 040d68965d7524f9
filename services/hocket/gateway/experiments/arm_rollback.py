"""Switches arms off and on: at once in this gateway; for all gateways, and over restarts, through
`arm.<experiment>.<arm>` in their bucket.

While NATS is unreachable, the write is postponed.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.errors import ExperimentNotTold, ExperimentUnknown
from hocket.gateway.core.experiments.arm_choice import Arm, Experiment
from hocket.gateway.core.routing.membership_records import ARM
from hocket.gateway.experiments.arms import Arms, TrackedArm
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.messages import ArmRolledBack

MAX_REASON_CHARS = 500

log = structlog.get_logger()


class ArmSwitches:
    """Switches arms off and on, and follows the switches of other gateways."""

    def __init__(
        self,
        arms: Arms,
        membership: Membership,
        *,
        now_ms: Callable[[], float],
        publish: Callable[[ArmRolledBack, str], None],
        metrics: GatewayMetrics | None,
    ) -> None:
        self._arms = arms
        self._membership = membership
        self._now_ms = now_ms
        self._publish = publish
        self._metrics = metrics
        self._writing: set[asyncio.Task[None]] = set()

    def use(self, experiments: Iterable[Experiment]) -> None:
        """Use other experiments from now on; what was reported of arms that are gone is removed."""
        before = dict(self._arms.items())
        self._arms.use(experiments)
        for key, tracked in before.items():
            if self._arms.get(key) is not tracked and self._metrics is not None:
                self._metrics.forget_arm(*key)

    def switch_off(self, experiment: Experiment, arm: Arm, cause: str, reason: str) -> None:
        """Switch off an arm that this gateway found bad."""
        tracked, by = self._arms[experiment.name, arm.name], self._membership.name
        tracked.off, tracked.cause, tracked.by = True, cause, by
        tracked.reason = reason[:MAX_REASON_CHARS]
        tracked.since_ms = self._now_ms()
        tracked.unwritten = True
        log.warning(
            "arm_rolled_back",
            experiment=experiment.name,
            arm=arm.name,
            model=arm.model,
            cause=cause,
            reason=reason,
            by=by,
        )
        self._show(experiment.name, arm.name, tracked)
        if self._metrics is not None:
            self._metrics.arm_rollbacks.labels(experiment.name, arm.name, cause).inc()
        self.write()

    async def control(
        self, action: str, experiment: str, arm: str, by: str, *, tenant: str | None
    ) -> None:
        """Switch an arm off or on by hand, if visible to `tenant`;
        raise ExperimentUnknown, ExperimentNotTold."""
        found, wanted = self._controllable(experiment, arm, tenant)
        tracked = self._arms[experiment, arm]
        off = action == "rollback"
        content = _content(tracked, off=off, epoch=tracked.epoch if off else tracked.epoch + 1)
        content |= {"by": by, "reason": "by hand" if off else "", "cause": "operator"}
        content["at_ms"] = self._now_ms()
        if await self._membership.put(_key(experiment, arm), content) is None:
            raise ExperimentNotTold(experiment=experiment, arm=arm)
        self._hear(found, wanted, content)
        if off:
            self._publish_fact(found, wanted, tracked)

    def hear(self) -> None:
        """Adopt the switches of other gateways."""
        for key, _, content in self._membership.told(ARM):
            name, _, arm_name = key.partition(".")
            found = self._arms.found(name, arm_name)
            if found is not None:
                self._hear(*found, content)

    def write(self) -> None:
        """Write arms that were switched off here and are not (or no longer) in the bucket."""
        for (name, arm_name), tracked in self._arms.items():
            if tracked.off and self._membership.is_overwritten(_key(name, arm_name)):
                tracked.unwritten = True
            if tracked.unwritten:
                tracked.unwritten = False
                task = asyncio.create_task(self._write(name, arm_name, tracked))
                self._writing.add(task)
                task.add_done_callback(self._writing.discard)

    def _controllable(
        self, experiment: str, arm: str, tenant: str | None
    ) -> tuple[Experiment, Arm]:
        """Return an arm that may be switched by hand, with its experiment; never the control."""
        visible = {one.name: one for one in self._arms.visible_to(tenant)}
        found = self._arms.found(experiment, arm) if experiment in visible else None
        if found is None or found[1] is found[0].control:
            known = ", ".join(
                f"{one.name}/{arm.name}" for one in visible.values() for arm in one.arms[1:]
            )
            raise ExperimentUnknown(experiment=experiment, arm=arm, known=known or "none")
        return found

    def _hear(self, experiment: Experiment, arm: Arm, content: Any) -> None:
        """Adopt the state of an arm, unless it belongs to a different arm or is outdated."""
        tracked = self._arms[experiment.name, arm.name]
        try:
            epoch, off, identity = int(content["epoch"]), bool(content["off"]), content["identity"]
        except (KeyError, TypeError, ValueError):
            return
        is_past = epoch < tracked.epoch or (epoch == tracked.epoch and not off)
        if identity != tracked.identity or is_past:
            return
        if epoch > tracked.epoch:
            tracked.epoch = epoch
            tracked.unwritten = False
            tracked.forget(experiment)
        elif tracked.off:
            tracked.unwritten = False
            return
        tracked.off = off
        tracked.cause, tracked.reason = (
            str(content.get("cause", "")),
            str(content.get("reason", "")),
        )
        tracked.by, tracked.since_ms = str(content.get("by", "")), content.get("at_ms")
        event = "arm_off" if off else "arm_on"
        log.info(
            event, experiment=experiment.name, arm=arm.name, by=tracked.by, reason=tracked.reason
        )
        self._show(experiment.name, arm.name, tracked)

    async def _write(self, name: str, arm_name: str, tracked: TrackedArm) -> None:
        key = _key(name, arm_name)
        told = self._membership.told(ARM)
        revision = next((rev for rest, rev, _ in told if ARM + rest == key), 0)
        content = _content(tracked, off=True, epoch=tracked.epoch)
        written = await self._membership.put(key, content, revision=revision)
        found = self._arms.found(name, arm_name)
        if found is None or self._arms.get((name, arm_name)) is not tracked:
            return
        if written is not None:
            self._publish_fact(*found, tracked)
        elif tracked.off:
            tracked.unwritten = True  # another gateway was faster, or NATS is unreachable

    def _publish_fact(self, experiment: Experiment, arm: Arm, tracked: TrackedArm) -> None:
        fact = ArmRolledBack(
            experiment=experiment.name,
            arm=arm.name,
            model=arm.model,
            cause=tracked.cause,
            reason=tracked.reason,
            by=tracked.by,
            at_ms=tracked.since_ms or self._now_ms(),
        )
        self._publish(fact, f"{experiment.name}:{arm.name}:{tracked.identity}:{tracked.epoch}")

    def _show(self, experiment: str, arm: str, tracked: TrackedArm) -> None:
        if self._metrics is not None:
            self._metrics.arm_off.labels(experiment, arm).set(float(tracked.off))


def _key(experiment: str, arm: str) -> str:
    return f"{ARM}{experiment}.{arm}"


def _content(tracked: TrackedArm, *, off: bool, epoch: int) -> dict[str, Any]:
    return {
        "identity": tracked.identity,
        "epoch": epoch,
        "off": off,
        "cause": tracked.cause,
        "reason": tracked.reason,
        "by": tracked.by,
        "at_ms": tracked.since_ms,
    }
