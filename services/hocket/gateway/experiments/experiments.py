"""The experiments of this gateway: which arm a call takes, what was observed, and when an arm is
switched off.

Each gateway counts what it observes, tells the others its counts (`tally_exchange.py`), and
evaluates arms by the total: for each tenant by its own calls, and for all by those of several
(`core/experiments/tenant_tallies.py`). A gateway that finds an arm bad switches it off at once, for
itself and all others (`arm_rollback.py`), and over restarts. While NATS is unreachable, each
gateway decides by what it knows.

States of an arm: on, off (found bad, or switched by hand), on again (restored by hand: a new
`epoch` with fresh counts). What is known of an arm remains valid as long as its experiment's scope
and models stay the same (`identity`); changed weights do not affect it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.budgets.runs_by_tenant import RunsByTenant
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.experiments.arm_choice import Arm, Experiment
from hocket.gateway.core.experiments.rollback_rule import fault_of
from hocket.gateway.core.experiments.tenant_tallies import NOTHING, fault_for_all
from hocket.gateway.core.routing.history import CallDurations
from hocket.gateway.experiments.arm_rollback import ArmSwitches
from hocket.gateway.experiments.arms import NO_RULE, Arms
from hocket.gateway.experiments.tally_exchange import TallyExchange
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import ArmRolledBack, CallRequest, ExperimentState, RunFinished

MAX_RUNS = 50_000
"""The most runs whose end is awaited; beyond that the oldest of the tenant with most are forgotten,
and nothing is learnt from them."""
RunArm = tuple[str, str]
"""The arm of a run: its name, and its identity when the run used it."""
SEVERAL: RunArm = ("", "")
"""Stands for the arm of a run that used more than one, and so says nothing of any."""
_SAYS_NOTHING = (ErrorClass.CANCELLED, ErrorClass.BUDGET, ErrorClass.INVALID)
_SAYS_NOTHING_UNASKED = (ErrorClass.TIMEOUT, ErrorClass.RATE_LIMITED)


@dataclass(frozen=True, slots=True)
class Assigned:
    """The arm of an experiment that a call takes."""

    experiment: Experiment
    arm: Arm
    tenant: str

    @property
    def because(self) -> str:
        """Why the call goes to a model other than the one it named."""
        return f"arm `{self.arm.name}` of `{self.experiment.name}`"


class Experiments:
    """Assigns calls to arms, and evaluates arms.

    `look` is to be called whenever the bucket has changed, and periodically.
    """

    def __init__(
        self,
        membership: Membership,
        *,
        now_ms: Callable[[], float],
        publish: Callable[[ArmRolledBack, str], None],
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self._arms = Arms()
        self._switches = ArmSwitches(
            self._arms, membership, now_ms=now_ms, publish=publish, metrics=metrics
        )
        self._tallies = TallyExchange(self._arms, membership)
        self._by_model: dict[str, list[Experiment]] = {}
        self._table: RoutingTable | None = None
        self._runs: RunsByTenant[dict[str, RunArm]] = RunsByTenant(MAX_RUNS)
        """The arm of each run in each experiment; SEVERAL if its first was switched off meanwhile."""

    def use(self, experiments: Iterable[Experiment], table: RoutingTable) -> None:
        """Use other experiments from now on; unchanged arms keep what is known of them."""
        self._table = table
        self._switches.use(experiments)
        self._by_model = {}
        for experiment in self._arms.experiments():
            self._by_model.setdefault(experiment.model, []).append(experiment)
        self.look()

    @property
    def pipelines(self) -> frozenset[str | None]:
        """The pipelines whose run outcomes matter; if None is among them, all do."""
        return frozenset(one.pipeline for one in self._arms.experiments())

    def assign(self, request: CallRequest) -> Assigned | None:
        """Return the arm of a call; None if no experiment applies to it."""
        if not self._by_model or self._table is None:
            return None
        model = self._table.aliases.get(request.model, request.model)
        for experiment in self._by_model.get(model, ()):
            if experiment.concerns(request.attribution):
                return self._assigned(experiment, request)
        return None

    def called(
        self, assigned: Assigned, error: ErrorInfo | None, *, asked: bool, latency_ms: float
    ) -> None:
        """Count the outcome of a call; `asked` tells whether any backend was asked."""
        found = self._arms.in_force(assigned.experiment, assigned.arm)
        if found is None or (error is not None and _says_nothing(error, asked)):
            return
        (experiment, arm), tenant = found, assigned.tenant
        tracked = self._arms[experiment.name, arm.name]
        control = self._arms[experiment.name, experiment.control.name]
        median_ms = control.tally.median_ms(tenant)
        factor = (experiment.rollback or NO_RULE).slow_factor
        slow_ms = None if median_ms is None else median_ms * factor
        enough_ms = CallDurations.LEAST_SLOW_MS if slow_ms is None else slow_ms
        if error is not None and error.error_class is ErrorClass.TIMEOUT and latency_ms < enough_ms:
            return  # the caller allowed less time than such calls take
        failed = error is not None
        tracked.tally.called(tenant, failed=failed, latency_ms=latency_ms, slow_ms=slow_ms)
        if self._metrics is not None:
            result = "ok" if error is None else "error"
            self._metrics.experiment_calls.labels(experiment.name, arm.name, result).inc()
        self._evaluate(experiment, arm, tenant)

    def knows(self, tenant: str, run_id: str) -> bool:
        """Tell whether a run made calls here that were part of an experiment."""
        return (tenant, run_id) in self._runs

    def ended(self, end: RunFinished) -> None:
        """Count the end of a run."""
        for name, used in (self._runs.pop(end.tenant, end.run_id) or {}).items():
            experiment = self._arms.experiment(name)
            if experiment is not None:
                self._take_outcome(experiment, used, end.tenant, experiment.success_of(end))

    def record_outcome(self, tenant: str, run_id: str, good: bool) -> None:
        """Count an explicit judgement of a run; its end is then ignored."""
        for name, used in (self._runs.pop(tenant, run_id) or {}).items():
            experiment = self._arms.experiment(name)
            if experiment is not None:
                self._take_outcome(experiment, used, tenant, good)

    async def control(
        self, action: str, experiment: str, arm: str, by: str, *, tenant: str | None = None
    ) -> None:
        """Switch an arm off or on by hand, if visible to `tenant`;
        raise ExperimentUnknown, ExperimentNotTold."""
        await self._switches.control(action, experiment, arm, by, tenant=tenant)

    def states(self, tenant: str | None = None) -> tuple[ExperimentState, ...]:
        """Return the states of the experiments visible to a tenant, for operators."""
        return self._arms.states(tenant)

    def look(self) -> None:
        """Adopt what other gateways wrote, write this one's state, and evaluate all arms."""
        if not len(self._arms):
            return
        self._switches.hear()
        self._tallies.hear()
        self._switches.write()
        self._tallies.tell()
        for experiment in self._arms.experiments():
            for arm in experiment.arms[1:]:
                if self._arms[experiment.name, arm.name].unjudged:
                    self._evaluate_all(experiment, arm)

    def _assigned(self, experiment: Experiment, request: CallRequest) -> Assigned:
        tenant, run_id = request.attribution.tenant, request.attribution.run_id
        tracked = ((arm.name, self._arms[experiment.name, arm.name]) for arm in experiment.arms)
        off = {name for name, one in tracked if one.is_off(tenant)}
        arm = experiment.arm_of(run_id or request.call_id, off)
        if run_id is not None:
            arms = self._runs.of(tenant, run_id, dict)
            used = arm.name, self._arms[experiment.name, arm.name].identity
            arms[experiment.name] = used if arms.get(experiment.name, used) == used else SEVERAL
        return Assigned(experiment, arm, tenant)

    def _take_outcome(
        self, experiment: Experiment, used: RunArm, tenant: str, succeeded: bool | None
    ) -> None:
        """Count the outcome of a run for its arm, unless a reload has replaced that."""
        name, identity = used
        tracked = self._arms.get((experiment.name, name))
        if tracked is not None and tracked.identity == identity and succeeded is not None:
            tracked.tally.ended(tenant, succeeded=succeeded)
            found = next(one for one in experiment.arms if one.name == name)
            self._evaluate(experiment, found, tenant)

    def _evaluate(self, experiment: Experiment, arm: Arm, tenant: str) -> None:
        """Switch an arm off for a tenant if its results show that it is bad for it. Those of all tenants
        are looked at then, and otherwise a moment later, because many may come at once."""
        tracked = self._arms[experiment.name, arm.name]
        tracked.unjudged = True
        if experiment.rollback is None or tracked.is_off(tenant) or tracked.control:
            return
        control = self._arms[experiment.name, experiment.control.name]
        fault = fault_of(experiment.rollback, tracked.seen_of(tenant), control.seen_of(tenant))
        if fault is not None:
            self._switches.switch_off(experiment, arm, *fault, tenant)
            self._evaluate_all(experiment, arm)

    def _evaluate_all(self, experiment: Experiment, arm: Arm) -> None:
        """Switch an arm off for each tenant, or for all, for which it is bad."""
        rule, tracked = experiment.rollback, self._arms[experiment.name, arm.name]
        tracked.unjudged = False
        if rule is None or tracked.for_all.off:
            return
        seen = tracked.seen
        usual = self._arms[experiment.name, experiment.control.name].seen
        for tenant, found in seen.items():
            if not tracked.is_off(tenant):
                fault = fault_of(rule, found, usual.get(tenant, NOTHING))
                if fault is not None:
                    self._switches.switch_off(experiment, arm, *fault, tenant)
        fault = fault_for_all(rule, seen, usual)
        if fault is not None:
            self._switches.switch_off(experiment, arm, *fault)


def _says_nothing(error: ErrorInfo, asked: bool) -> bool:
    """Tell whether an error says nothing about the model: the caller stopped the call, had no time or
    money left, or asked for what is not valid (a prompt that is too long, a backend that there is
    not)."""
    return error.error_class in _SAYS_NOTHING or (
        not asked and error.error_class in _SAYS_NOTHING_UNASKED
    )
