"""What is known of each arm: whether it is on, and what this and the other gateways observed."""

from collections.abc import Iterable, Iterator

from hocket.gateway.core.experiments.arm_choice import Arm, Experiment
from hocket.gateway.core.experiments.rollback_rule import RollbackRule, Seen, Tally
from hocket.schemas.messages import ArmState, ExperimentState

NO_RULE = RollbackRule()
"""The rule for comparing arms that are never rolled back."""
ArmKey = tuple[str, str]
"""The names of an experiment and of its arm."""


class TrackedArm:
    """What is known of one arm; `tally` is this gateway's own,
    `others` what other gateways reported."""

    def __init__(self, experiment: Experiment, arm: Arm) -> None:
        self.identity = experiment.identity(arm.name)
        self.control = arm is experiment.control
        self.epoch = 0
        self.off = False
        self.reason = self.by = self.cause = ""
        self.since_ms: float | None = None
        self.unwritten = False
        self.others: dict[str, tuple[int, Seen]] = {}
        self.forget(experiment)

    def forget(self, experiment: Experiment) -> None:
        """Reset the counts."""
        self.tally = Tally(experiment.rollback or NO_RULE, control=self.control)
        self.others = {}

    @property
    def seen(self) -> Seen:
        """The recent observations of all gateways together."""
        return sum((seen for _, seen in self.others.values()), self.tally.seen)

    @property
    def calls(self) -> int:
        """The calls of all gateways together."""
        return self.tally.calls + sum(calls for calls, _ in self.others.values())


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
                same = known is not None and known.identity == experiment.identity(arm.name)
                self._arms[key] = known if known and same else TrackedArm(experiment, arm)

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

    def visible_to(self, tenant: str | None) -> Iterator[Experiment]:
        """Yield the experiments that a tenant may see: its own and those for all tenants;
        without a tenant, all."""
        for one in self._experiments.values():
            if tenant is None or one.tenant in (None, tenant):
                yield one

    def states(self, tenant: str | None) -> tuple[ExperimentState, ...]:
        """Return the states of the experiments visible to a tenant, for operators."""
        return tuple(
            ExperimentState(
                experiment=one.name,
                model=one.model,
                tenant=one.tenant,
                pipeline=one.pipeline,
                node=one.node,
                judged=one.rollback is not None,
                arms=tuple(_state(arm, self._arms[one.name, arm.name]) for arm in one.arms),
            )
            for one in self.visible_to(tenant)
        )


def _state(arm: Arm, tracked: TrackedArm) -> ArmState:
    seen = tracked.seen
    return ArmState(
        arm=arm.name,
        model=arm.model,
        weight=arm.weight,
        control=tracked.control,
        off=tracked.off,
        reason=tracked.reason,
        since_ms=tracked.since_ms,
        by=tracked.by,
        calls=tracked.calls,
        errors=(seen.errors.bad, seen.errors.of),
        slow=(seen.slow.bad, seen.slow.of),
        outcomes=(seen.outcomes.bad, seen.outcomes.of),
    )
