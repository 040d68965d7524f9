"""Switches arms off and on, for all tenants or for one: at once in this gateway; for all gateways, and
over restarts, through `arm.<experiment>.<arm>` or `arm.<experiment>.<arm>.<tenant>` in their bucket.

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
from hocket.gateway.experiments.arms import MAX_REASON_CHARS, ArmKey, Arms, Switch, TrackedArm
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.messages import ArmRolledBack
from hocket.schemas.subjects import TOKEN

MAX_TENANTS_OFF = 256
"""The most tenants for which an arm is off; with one more, it is off for all."""

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
        """Use other experiments from now on; what was reported of arms that are gone, or cannot be off
        any more, is removed."""
        before = dict(self._arms.items())
        self._arms.use(experiments)
        for key, tracked in before.items():
            if not self._may_be_off(key, tracked) and self._metrics is not None:
                self._metrics.forget_arm(*key)

    def switch_off(
        self, experiment: Experiment, arm: Arm, cause: str, reason: str, tenant: str | None = None
    ) -> None:
        """Switch off an arm that this gateway found bad, for a tenant or (None) for all of them."""
        tracked, by = self._arms[experiment.name, arm.name], self._membership.name
        if len(tracked.for_tenant) >= MAX_TENANTS_OFF:
            tenant = None
        elif tenant is not None:
            reason = f"for tenant `{tenant}`: {reason}"
        said = reason[:MAX_REASON_CHARS]
        may_be_told = tenant is None or bool(TOKEN.fullmatch(tenant))
        switch = Switch(True, cause, said, by, self._now_ms(), unwritten=may_be_told)
        tracked.switch(tenant, switch)
        log.warning(
            "arm_rolled_back",
            experiment=experiment.name,
            arm=arm.name,
            model=arm.model,
            cause=cause,
            reason=reason,
            by=by,
            tenant=tenant,
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
        switch = Switch(off, "operator", "by hand" if off else "", by, self._now_ms())
        content = _content(tracked, switch, epoch=tracked.epoch if off else tracked.epoch + 1)
        if await self._membership.put(_key(experiment, arm, None), content) is None:
            raise ExperimentNotTold(experiment=experiment, arm=arm)
        self._hear(found, wanted, None, content)
        if off and self._may_be_off((experiment, arm), tracked):
            self._publish_fact(found, wanted, tracked, None, switch)

    def hear(self) -> None:
        """Adopt the switches of other gateways."""
        for key, _, content in self._membership.told(ARM):
            name, arm_name, tenant = (*key.split(".", 2), None)[:3]
            found = self._arms.found(name or "", arm_name or "")
            if found is not None:
                self._hear(*found, tenant, content)

    def write(self) -> None:
        """Write arms that were switched off here and are not (or no longer) in the bucket."""
        for (name, arm_name), tracked in self._arms.items():
            for tenant, switch in tracked.switches():
                key = _key(name, arm_name, tenant)
                if switch.off and self._membership.is_overwritten(key):
                    switch.unwritten = True
                if switch.unwritten:
                    switch.unwritten = False
                    writing = self._write(name, arm_name, tracked, tenant, switch)
                    task = asyncio.create_task(writing)
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

    def _hear(self, experiment: Experiment, arm: Arm, tenant: str | None, content: Any) -> None:
        """Adopt the state of an arm, for a tenant or for all, unless it belongs to a different arm or is
        outdated."""
        tracked = self._arms.get((experiment.name, arm.name))
        if tracked is None or tracked.control:
            return  # a reload removed it, or made it the control
        try:
            epoch, off, identity = int(content["epoch"]), bool(content["off"]), content["identity"]
        except (KeyError, TypeError, ValueError):
            return
        if identity != tracked.identity or tracked.is_past(epoch, off=off):
            return
        if epoch > tracked.epoch:
            if tenant is not None:
                return  # the restoration that it follows is yet to be heard of
            tracked.epoch = epoch
            tracked.forget(experiment)
        elif (known := tracked.switched(tenant)) is not None:
            known.unwritten = False
            return
        if tenant is not None and len(tracked.for_tenant) >= MAX_TENANTS_OFF:
            return
        cause, reason, by = (str(content.get(name, "")) for name in ("cause", "reason", "by"))
        switch = Switch(off, cause, reason, by, content.get("at_ms"))
        tracked.switch(tenant, switch)
        log.info(
            "arm_off" if off else "arm_on",
            experiment=experiment.name,
            arm=arm.name,
            by=switch.by,
            reason=switch.reason,
            tenant=tenant,
        )
        self._show(experiment.name, arm.name, tracked)

    async def _write(
        self, name: str, arm_name: str, tracked: TrackedArm, tenant: str | None, switch: Switch
    ) -> None:
        if tracked.switched(tenant) is not switch:
            return  # it was restored meanwhile
        key = _key(name, arm_name, tenant)
        told = self._membership.told(ARM)
        revision = next((rev for rest, rev, _ in told if ARM + rest == key), 0)
        content = _content(tracked, switch, epoch=tracked.epoch)
        written = await self._membership.put(key, content, revision=revision)
        found = self._arms.found(name, arm_name)
        if found is None or not self._may_be_off((name, arm_name), tracked):
            return
        if written is not None:
            self._publish_fact(*found, tracked, tenant, switch)
        elif tracked.switched(tenant) is switch:
            switch.unwritten = True  # another gateway was faster, or NATS is unreachable

    def _publish_fact(
        self, experiment: Experiment, arm: Arm, tracked: TrackedArm, tenant: str | None, off: Switch
    ) -> None:
        fact = ArmRolledBack(
            experiment=experiment.name,
            arm=arm.name,
            model=arm.model,
            cause=off.cause,
            reason=off.reason,
            by=off.by,
            at_ms=off.since_ms or self._now_ms(),
        )
        msg_id = f"{experiment.name}:{arm.name}:{tracked.identity}:{tracked.epoch}"
        self._publish(fact, msg_id if tenant is None else f"{msg_id}:{tenant}")

    def _may_be_off(self, key: ArmKey, tracked: TrackedArm) -> bool:
        """Tell whether no reload has replaced or removed an arm, or made it the control."""
        return self._arms.get(key) is tracked and not tracked.control

    def _show(self, experiment: str, arm: str, tracked: TrackedArm) -> None:
        if self._metrics is not None:
            off = any(switch.off for _, switch in tracked.switches())
            self._metrics.arm_off.labels(experiment, arm).set(float(off))


def _key(experiment: str, arm: str, tenant: str | None) -> str:
    key = f"{ARM}{experiment}.{arm}"
    return key if tenant is None else f"{key}.{tenant}"


def _content(tracked: TrackedArm, switch: Switch, *, epoch: int) -> dict[str, Any]:
    return {
        "identity": tracked.identity,
        "epoch": epoch,
        "off": switch.off,
        "cause": switch.cause,
        "reason": switch.reason,
        "by": switch.by,
        "at_ms": switch.since_ms,
    }
