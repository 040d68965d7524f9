"""What is known of each arm: whether it is on, and what this and the other gateways observed."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from hocket.gateway.core.experiments.arm_choice import Arm, Experiment
from hocket.gateway.core.experiments.rollback_rule import RollbackRule, Seen
from hocket.gateway.core.experiments.tenant_tallies import NOTHING, TenantTallies, together
from hocket.schemas.messages import ArmState, ExperimentState

NO_RULE = RollbackRule()
"""The rule for comparing arms that are never rolled back."""
MAX_REASON_CHARS = 500
ArmKey = tuple[str, str]
"""The names of an experiment and of its arm."""


@dataclass(slots=True)
class Switch:
    """Whether an arm is off, for all tenants or for one, and why; `unwritten` if the other gateways are
    yet to be told."""

    off: bool = False
    cause: str = ""
    reason: str = ""
    by: str = ""
    since_ms: float | None = None
    unwritten: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """What another gateway observed of an arm."""

    calls: int
    seen: dict[str, Seen] = field(default_factory=dict)


class TrackedArm:
    """What is known of one arm; `tally` is this gateway's own,
    `others` what other gateways reported."""

    def __init__(self, experiment: Experiment, arm: Arm) -> None:
        self.identity = experiment.identity(arm.name)
        self.control = arm is experiment.control
        self.epoch = 0
        self.for_all = Switch()
        self.others: dict[str, Reported] = {}
        self.forget(experiment)

    def use(self, experiment: Experiment, arm: Arm) -> None:
        """Use another definition of the same arm from now on: what is known of it stays, but the control
        is never off."""
        self.control = arm is experiment.control
        if self.control:
            self.for_all = Switch()
            self.for_tenant.clear()
        self.tally.use(experiment.rollback or NO_RULE, control=self.control)

    def forget(self, experiment: Experiment) -> None:
        """Reset the counts, and what they showed of single tenants."""
        self.for_tenant: dict[str, Switch] = {}
        self.tally = TenantTallies(experiment.rollback or NO_RULE, control=self.control)
        self.others = {}
        self.unjudged = False
        """Whether results have come in since it was last judged for all tenants."""

    def is_off(self, tenant: str) -> bool:
        """Tell whether the arm is off for a tenant."""
        return self.for_all.off or tenant in self.for_tenant

    def is_past(self, epoch: int, *, off: bool) -> bool:
        """Tell whether a state that was told is older than the one known here."""
        return epoch < self.epoch or (epoch == self.epoch and not off)

    def switch(self, tenant: str | None, switch: Switch) -> None:
        """Set whether the arm is off, for a tenant or (None) for all."""
        if tenant is None:
            self.for_all = switch
        else:
            self.for_tenant[tenant] = switch

    def switched(self, tenant: str | None) -> Switch | None:
        """Return what switched the arm off, for a tenant or (None) for all; None if it is on."""
        if tenant is None:
            return self.for_all if self.for_all.off else None
        return self.for_tenant.get(tenant)

    def switches(self) -> Iterator[tuple[str | None, Switch]]:
        """Yield all switches with their tenants; that for all is the first."""
        yield None, self.for_all
        yield from self.for_tenant.items()

    @property
    def seen(self) -> dict[str, Seen]:
        """The recent observations of all gateways together, by tenant."""
        return together(self.tally.seen, *(one.seen for one in self.others.values()))

    def seen_of(self, tenant: str) -> Seen:
        """Return the recent observations of a tenant at all gateways together."""
        of_others = (one.seen.get(tenant, NOTHING) for one in self.others.values())
        return sum(of_others, self.tally.seen_of(tenant))

    @property
    def calls(self) -> int:
        """The calls of all gateways together."""
        return self.tally.calls + sum(one.calls for one in self.others.values())


class Arms:
    """The experiments in force, and their arms."""

    def __init__(self) -> None:
        self._experiments: dict[str, Experiment] = {}
        self._arms: dict[ArmKey, TrackedArm] = {}

    def __len__(self) -> int:
        return len(self._arms)

    def __getitem__(self, key: ArmKey) -> TrackedArm:
        return self._arms[key]

    def use(self, experiments: Iterable[Experiment]) -> None:
        """Use other experiments from now on; unchanged arms keep what is known of them."""
        before, self._arms = self._arms, {}
        self._experiments = {one.name: one for one in experiments}
        for experiment in self._experiments.values():
            for arm in experiment.arms:
                key = (experiment.name, arm.name)
                known = before.get(key)
                if known is not None and known.identity == experiment.identity(arm.name):
                    known.use(experiment, arm)
                    self._arms[key] = known
                else:
                    self._arms[key] = TrackedArm(experiment, arm)

    def experiments(self) -> Iterable[Experiment]:
        """Return the experiments in force."""
        return self._experiments.values()

    def experiment(self, name: str) -> Experiment | None:
        """Return an experiment by name."""
        return self._experiments.get(name)

    def get(self, key: ArmKey) -> TrackedArm | None:
        """Return what is known of an arm; None if there is no such arm."""
        return self._arms.get(key)

    def items(self) -> Iterable[tuple[ArmKey, TrackedArm]]:
        """Return all arms."""
        return self._arms.items()

    def found(self, name: str, arm: str) -> tuple[Experiment, Arm] | None:
        """Return an experiment and its arm by their names."""
        experiment = self._experiments.get(name)
        arms = experiment.arms if experiment is not None else ()
        found = next((one for one in arms if one.name == arm), None)
        return None if experiment is None or found is None else (experiment, found)

    def in_force(self, experiment: Experiment, arm: Arm) -> tuple[Experiment, Arm] | None:
        """Return an arm that was assigned, and its experiment, as they are now; None if a reload has
        removed the arm, or changed what it or its control is."""
        found = self.found(experiment.name, arm.name)
        if found is None or found[0] is experiment:
            return found
        return found if found[0].identity(arm.name) == experiment.identity(arm.name) else None

    def visible_to(self, tenant: str | None) -> Iterator[Experiment]:
        """Yield the experiments that a tenant may see: its own and those for all tenants;
        without a tenant, all."""
        for one in self._experiments.values():
            if tenant is None or one.tenant in (None, tenant):
                yield one

    def states(self, tenant: str | None) -> tuple[ExperimentState, ...]:
        """Return the states of the experiments visible to a tenant, for operators."""
        return tuple(self._state(one, tenant) for one in self.visible_to(tenant))

    def _state(self, experiment: Experiment, tenant: str | None) -> ExperimentState:
        tracked = {arm.name: self._arms[experiment.name, arm.name] for arm in experiment.arms}
        tenants = {name for one in tracked.values() for name in one.seen}
        return ExperimentState(
            experiment=experiment.name,
            model=experiment.model,
            tenant=experiment.tenant,
            pipeline=experiment.pipeline,
            node=experiment.node,
            judged=experiment.rollback is not None,
            arms=tuple(
                _arm_state(arm, tracked[arm.name], _switch_for(tracked[arm.name], tenant, tenants))
                for arm in experiment.arms
            ),
        )


def _switch_for(tracked: TrackedArm, tenant: str | None, tenants: AbstractSet[str]) -> Switch:
    """Return whether an arm is off as a tenant is told, or (None) an operator: for the latter an arm is
    off once no tenant that takes part uses it; otherwise the reason names those for which it is off."""
    off = tracked.for_tenant
    if tracked.for_all.off or not off:
        return tracked.for_all
    if tenant is not None:
        return off.get(tenant, tracked.for_all)
    latest = max(off.values(), key=lambda one: one.since_ms or 0.0)
    return Switch(
        off=tenants <= off.keys(),
        cause=latest.cause,
        reason="; ".join(one.reason for one in off.values()),
        by=latest.by,
        since_ms=latest.since_ms,
    )


def _arm_state(arm: Arm, tracked: TrackedArm, switch: Switch) -> ArmState:
    seen = sum(tracked.seen.values(), Seen())
    return ArmState(
        arm=arm.name,
        model=arm.model,
        weight=arm.weight,
        control=tracked.control,
        off=switch.off,
        reason=switch.reason[:MAX_REASON_CHARS],
        since_ms=switch.since_ms,
        by=switch.by,
        calls=tracked.calls,
        errors=(seen.errors.bad, seen.errors.of),
        slow=(seen.slow.bad, seen.slow.of),
        outcomes=(seen.outcomes.bad, seen.outcomes.of),
    )
