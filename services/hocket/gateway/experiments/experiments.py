"""The experiments of this gateway: which arm a call takes, what was seen of it, and when it is switched
off.

Each gateway counts what it sees itself, tells the others its counts (`tally.<experiment>.<gateway>` in
their bucket, at most every TELL_S), and judges by the sum. Whoever finds an arm bad switches it off at
once for itself and writes `arm.<experiment>.<arm>`; all others hear it and do the same, so what one
found holds for all, and after a restart. While NATS is away each gateway goes by what it knows, and
writes it later.

States of an arm: on, off (found bad, or by hand), on again (restored by hand: a new `epoch`, with
nothing counted). What is kept holds for an arm as long as its experiment's scope and models stay what
they are (`identity`); other weights change nothing of it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.errors import ExperimentNotTold, ExperimentUnknown
from hocket.gateway.core.experiments.arm_evaluation import Rate, RollbackRule, Seen, Tally, fault_of
from hocket.gateway.core.experiments.experiments import Arm, Experiment
from hocket.gateway.core.routing.history import CallDurations
from hocket.gateway.core.routing.membership_records import ARM, TALLY
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import (
    ArmRolledBack,
    ArmState,
    CallRequest,
    ExperimentState,
    RunFinished,
)

TELL_S = 0.25
RunKey = tuple[str, str]
"""The tenant of a run and its id: another tenant's run of the same name is another one."""
MAX_RUNS = 50_000
"""Runs whose end is waited for; of the oldest ones beyond that nothing is learnt."""
MAX_REASON_CHARS = 500
_SAYS_NOTHING = (ErrorClass.CANCELLED, ErrorClass.BUDGET)
_SAYS_NOTHING_UNASKED = (ErrorClass.TIMEOUT, ErrorClass.RATE_LIMITED)
_UNJUDGED = RollbackRule()

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Assigned:
    """The arm of an experiment that a call takes."""

    experiment: Experiment
    arm: Arm

    @property
    def because(self) -> str:
        """Why the call goes to another model than it named."""
        return f"arm `{self.arm.name}` of `{self.experiment.name}`"


class _ArmKept:
    """What is known of one arm here; `tally` is our own, `others` are what the others told."""

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
        """Begin to count anew."""
        self.tally = Tally(experiment.rollback or _UNJUDGED, control=self.control)
        self.others = {}

    @property
    def seen(self) -> Seen:
        """What all gateways together saw lately."""
        return sum((seen for _, seen in self.others.values()), self.tally.seen)

    @property
    def calls(self) -> int:
        return self.tally.calls + sum(calls for calls, _ in self.others.values())


class Experiments:
    """See the module; `look` is called when the bucket changed, and now and then."""

    def __init__(
        self,
        membership: Membership,
        *,
        now_ms: Callable[[], float],
        publish: Callable[[ArmRolledBack, str], None],
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self._membership = membership
        self._now_ms = now_ms
        self._publish = publish
        self._metrics = metrics
        self._by_model: dict[str, list[Experiment]] = {}
        self._aliases: RoutingTable | None = None
        self._experiments: dict[str, Experiment] = {}
        self._arms: dict[tuple[str, str], _ArmKept] = {}
        self._runs: OrderedDict[RunKey, dict[str, str]] = OrderedDict()
        self._told: dict[str, Any] = {}
        self._forgetting: set[str] = set()
        self._told_at_s = float("-inf")
        self._telling: set[asyncio.Task[Any]] = set()

    def use(self, experiments: Iterable[Experiment], table: RoutingTable) -> None:
        """Go by other experiments from now on; of arms that are the same what is known stays."""
        before, self._arms, self._by_model = self._arms, {}, {}
        self._aliases = table
        self._experiments = {one.name: one for one in experiments}
        for experiment in self._experiments.values():
            self._by_model.setdefault(experiment.model, []).append(experiment)
            for arm in experiment.arms:
                key = (experiment.name, arm.name)
                kept = before.get(key)
                same = kept is not None and kept.identity == experiment.identity(arm.name)
                self._arms[key] = kept if kept and same else _ArmKept(experiment, arm)
        self.look()

    @property
    def pipelines(self) -> frozenset[str | None]:
        """The pipelines whose runs' ends tell something; None among them means all of them."""
        return frozenset(one.pipeline for one in self._experiments.values())

    # ---- calls --------------------------------------------------------------------------------

    def assign(self, request: CallRequest) -> Assigned | None:
        """Return the arm of a call, None where no experiment concerns it."""
        if not self._by_model or self._aliases is None:
            return None
        model = self._aliases.aliases.get(request.model, request.model)
        for experiment in self._by_model.get(model, ()):
            if experiment.concerns(request.attribution):
                return self._assigned(experiment, request)
        return None

    def _assigned(self, experiment: Experiment, request: CallRequest) -> Assigned:
        run_id = request.attribution.run_id
        off = {arm.name for arm in experiment.arms if self._arms[experiment.name, arm.name].off}
        arm = experiment.arm_of(run_id or request.call_id, off)
        if run_id is not None:
            run = request.attribution.tenant, run_id
            self._runs.setdefault(run, {})[experiment.name] = arm.name
            self._runs.move_to_end(run)
            if len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)
        return Assigned(experiment, arm)

    def called(
        self, assigned: Assigned, error: ErrorInfo | None, *, asked: bool, latency_ms: float
    ) -> None:
        """Take in what became of a call; `asked` says whether any backend was."""
        experiment, arm = assigned.experiment, assigned.arm
        kept = self._arms.get((experiment.name, arm.name))
        if kept is None or (error is not None and _says_nothing(error, asked)):
            return
        median_ms = self._arms[experiment.name, experiment.control.name].tally.median_ms
        factor = (experiment.rollback or _UNJUDGED).slow_factor
        slow_ms = None if median_ms is None else median_ms * factor
        enough_ms = CallDurations.LEAST_SLOW_MS if slow_ms is None else slow_ms
        if error is not None and error.error_class is ErrorClass.TIMEOUT and latency_ms < enough_ms:
            return  # its caller gave it less time than such calls take
        kept.tally.called(failed=error is not None, latency_ms=latency_ms, slow_ms=slow_ms)
        if self._metrics is not None:
            result = "ok" if error is None else "error"
            self._metrics.experiment_calls.labels(experiment.name, arm.name, result).inc()
        self._judge(experiment, arm)

    def knows(self, tenant: str, run_id: str) -> bool:
        """Tell whether a run made calls here that were part of an experiment."""
        return (tenant, run_id) in self._runs

    def ended(self, end: RunFinished) -> None:
        """Take in the end of a run."""
        for name, arm in self._runs.pop((end.tenant, end.run_id), {}).items():
            experiment = self._experiments.get(name)
            if experiment is not None:
                self._outcome(experiment, arm, experiment.success_of(end))

    def judged(self, tenant: str, run_id: str, good: bool) -> None:
        """Take in what somebody says of a run; its end says nothing more."""
        for name, arm in self._runs.pop((tenant, run_id), {}).items():
            experiment = self._experiments.get(name)
            if experiment is not None:
                self._outcome(experiment, arm, good)

    def _outcome(self, experiment: Experiment, arm: str, succeeded: bool | None) -> None:
        kept = self._arms.get((experiment.name, arm))
        if kept is not None and succeeded is not None:
            kept.tally.ended(succeeded=succeeded)
            self._judge(experiment, next(one for one in experiment.arms if one.name == arm))

    # ---- switching ----------------------------------------------------------------------------

    def _judge(self, experiment: Experiment, arm: Arm) -> None:
        kept = self._arms[experiment.name, arm.name]
        if experiment.rollback is None or kept.off or kept.control:
            return
        control = self._arms[experiment.name, experiment.control.name]
        fault = fault_of(experiment.rollback, kept.seen, control.seen)
        if fault is not None:
            self._switch_off(experiment, arm, *fault, by=self._membership.name)

    def _switch_off(
        self, experiment: Experiment, arm: Arm, cause: str, reason: str, *, by: str
    ) -> None:
        kept = self._arms[experiment.name, arm.name]
        kept.off, kept.cause, kept.reason, kept.by = True, cause, reason[:MAX_REASON_CHARS], by
        kept.since_ms = self._now_ms()
        kept.unwritten = True
        log.warning(
            "arm_rolled_back",
            experiment=experiment.name,
            arm=arm.name,
            model=arm.model,
            cause=cause,
            reason=reason,
            by=by,
        )
        self._shown(experiment.name, arm.name, kept)
        if self._metrics is not None:
            self._metrics.arm_rollbacks.labels(experiment.name, arm.name, cause).inc()
        self._write()

    async def control(
        self, action: str, experiment: str, arm: str, by: str, *, tenant: str | None = None
    ) -> None:
        """Switch an arm off or on by hand, as far as `tenant` sees it; raise ExperimentUnknown,
        ExperimentNotTold."""
        seen = {one.name: one for one in self._seen_by(tenant)}
        found = seen.get(experiment)
        others = found.arms[1:] if found is not None else ()
        wanted = next((one for one in others if one.name == arm), None)
        if found is None or wanted is None:
            known = ", ".join(
                f"{one.name}/{arm.name}" for one in seen.values() for arm in one.arms[1:]
            )
            raise ExperimentUnknown(experiment=experiment, arm=arm, known=known or "none")
        kept = self._arms[experiment, arm]
        off = action == "rollback"
        content = _content(kept, off=off, epoch=kept.epoch if off else kept.epoch + 1)
        content |= {"by": by, "reason": "by hand" if off else "", "cause": "operator"}
        content["at_ms"] = self._now_ms()
        if await self._membership.put(_key(experiment, arm), content) is None:
            raise ExperimentNotTold(experiment=experiment, arm=arm)
        self._heard(found, wanted, content)
        if off:
            self._fact(found, wanted, kept)

    def look(self) -> None:
        """Take over what the others wrote, write what is ours, and judge by it."""
        if not self._arms:
            return
        for key, _, content in self._membership.told(ARM):
            name, _, arm_name = key.partition(".")
            experiment, arm = self._found(name, arm_name)
            if experiment is not None and arm is not None:
                self._heard(experiment, arm, content)
        self._hear_tallies()
        self._write()
        self._tell()
        for experiment in self._experiments.values():
            for arm in experiment.arms[1:]:
                self._judge(experiment, arm)

    def _heard(self, experiment: Experiment, arm: Arm, content: Any) -> None:
        """Take over the state of an arm, unless it is that of another one, or of the past."""
        kept = self._arms[experiment.name, arm.name]
        try:
            epoch, off, identity = int(content["epoch"]), bool(content["off"]), content["identity"]
        except (KeyError, TypeError, ValueError):
            return
        if identity != kept.identity or epoch < kept.epoch or (epoch == kept.epoch and not off):
            return
        if epoch > kept.epoch:
            kept.epoch = epoch
            kept.unwritten = False
            kept.forget(experiment)
        elif kept.off:
            kept.unwritten = False
            return
        kept.off = off
        kept.cause, kept.reason = str(content.get("cause", "")), str(content.get("reason", ""))
        kept.by, kept.since_ms = str(content.get("by", "")), content.get("at_ms")
        event = "arm_off" if off else "arm_on"
        log.info(event, experiment=experiment.name, arm=arm.name, by=kept.by, reason=kept.reason)
        self._shown(experiment.name, arm.name, kept)

    def _write(self) -> None:
        """Write the arms that were switched off and are not written yet, or not any more."""
        for (name, arm_name), kept in self._arms.items():
            if kept.off and self._membership.is_overwritten(_key(name, arm_name)):
                kept.unwritten = True
            if kept.unwritten:
                kept.unwritten = False
                task = asyncio.create_task(self._written(name, arm_name, kept))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

    async def _written(self, name: str, arm_name: str, kept: _ArmKept) -> None:
        key = _key(name, arm_name)
        revision = next(
            (rev for rest, rev, _ in self._membership.told(ARM) if ARM + rest == key), 0
        )
        written = await self._membership.put(
            key, _content(kept, off=True, epoch=kept.epoch), revision=revision
        )
        experiment, arm = self._found(name, arm_name)
        if experiment is None or arm is None or self._arms.get((name, arm_name)) is not kept:
            return
        if written is not None:
            self._fact(experiment, arm, kept)
        elif kept.off:
            kept.unwritten = True  # somebody else was faster, which will be heard, or NATS is away

    def _fact(self, experiment: Experiment, arm: Arm, kept: _ArmKept) -> None:
        fact = ArmRolledBack(
            experiment=experiment.name,
            arm=arm.name,
            model=arm.model,
            cause=kept.cause,
            reason=kept.reason,
            by=kept.by,
            at_ms=kept.since_ms or self._now_ms(),
        )
        self._publish(fact, f"{experiment.name}:{arm.name}:{kept.identity}:{kept.epoch}")

    # ---- counts -------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Tell the others our counts, where they changed."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_at_s < TELL_S:
            return
        for experiment in self._experiments.values():
            content = {
                arm.name: _counts(self._arms[experiment.name, arm.name]) for arm in experiment.arms
            }
            key = f"{TALLY}{experiment.name}.{self._membership.name}"
            if self._told.get(experiment.name) != content or self._membership.is_overwritten(key):
                self._told[experiment.name] = content
                self._told_at_s = now_s
                task = asyncio.create_task(self._tell_counts(experiment.name, content))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

    async def _tell_counts(self, name: str, content: dict[str, Any]) -> None:
        key = f"{TALLY}{name}.{self._membership.name}"
        if await self._membership.put(key, content) is None:
            self._told.pop(name, None)  # NATS is away: tell them again

    def _hear_tallies(self) -> None:
        heard: dict[tuple[str, str], dict[str, tuple[int, Seen]]] = {}
        for key, _, content in self._membership.told(TALLY):
            name, _, gateway = key.partition(".")
            if gateway == self._membership.name:
                continue
            if gateway not in self._membership.live:
                self._forget(TALLY + key)
                continue
            for arm, counts in content.items() if isinstance(content, dict) else ():
                kept = self._arms.get((name, arm))
                if kept is not None and (parsed := _parsed(counts, kept)) is not None:
                    heard.setdefault((name, arm), {})[gateway] = parsed
        for place, kept in self._arms.items():
            kept.others = heard.get(place, {})

    def _forget(self, key: str) -> None:
        """Delete the counts of a gateway that is gone."""
        if self._membership.leads and key not in self._forgetting:
            self._forgetting.add(key)
            task = asyncio.create_task(self._membership.put(key, None))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
            task.add_done_callback(lambda _: self._forgetting.discard(key))

    def _found(self, name: str, arm: str) -> tuple[Experiment | None, Arm | None]:
        experiment = self._experiments.get(name)
        arms = experiment.arms if experiment is not None else ()
        return experiment, next((one for one in arms if one.name == arm), None)

    def _shown(self, experiment: str, arm: str, kept: _ArmKept) -> None:
        if self._metrics is not None:
            self._metrics.arm_off.labels(experiment, arm).set(float(kept.off))

    def _seen_by(self, tenant: str | None) -> list[Experiment]:
        """Return the experiments that a tenant may see: its own, and those of all; without one, all."""
        return [
            one
            for one in self._experiments.values()
            if tenant is None or one.tenant in (None, tenant)
        ]

    def states(self, tenant: str | None = None) -> tuple[ExperimentState, ...]:
        """Return the experiments as operators see them: a tenant's, and those of all."""
        return tuple(
            ExperimentState(
                experiment=one.name,
                model=one.model,
                tenant=one.tenant,
                pipeline=one.pipeline,
                node=one.node,
                judged=one.rollback is not None,
                arms=tuple(self._state(one, arm) for arm in one.arms),
            )
            for one in self._seen_by(tenant)
        )

    def _state(self, experiment: Experiment, arm: Arm) -> ArmState:
        kept = self._arms[experiment.name, arm.name]
        seen = kept.seen
        return ArmState(
            arm=arm.name,
            model=arm.model,
            weight=arm.weight,
            control=kept.control,
            off=kept.off,
            reason=kept.reason,
            since_ms=kept.since_ms,
            by=kept.by,
            calls=kept.calls,
            errors=(seen.errors.bad, seen.errors.of),
            slow=(seen.slow.bad, seen.slow.of),
            outcomes=(seen.outcomes.bad, seen.outcomes.of),
        )


def _says_nothing(error: ErrorInfo, asked: bool) -> bool:
    """Tell whether an error is not the model's: its caller stopped it, or had no time or money left."""
    return error.error_class in _SAYS_NOTHING or (
        not asked and error.error_class in _SAYS_NOTHING_UNASKED
    )


def _key(experiment: str, arm: str) -> str:
    return f"{ARM}{experiment}.{arm}"


def _content(kept: _ArmKept, *, off: bool, epoch: int) -> dict[str, Any]:
    return {
        "identity": kept.identity,
        "epoch": epoch,
        "off": off,
        "cause": kept.cause,
        "reason": kept.reason,
        "by": kept.by,
        "at_ms": kept.since_ms,
    }


def _counts(kept: _ArmKept) -> list[Any]:
    seen = kept.tally.seen
    rates = [[one.bad, one.of] for one in (seen.errors, seen.slow, seen.outcomes)]
    return [kept.identity, kept.epoch, kept.tally.calls, *rates]


def _parsed(counts: Any, kept: _ArmKept) -> tuple[int, Seen] | None:
    """Return the calls and the rates that another gateway tells of the same arm, None of another."""
    try:
        identity, epoch, calls, *rates = counts
        if identity != kept.identity or epoch != kept.epoch:
            return None
        errors, slow, outcomes = (Rate(int(bad), int(of)) for bad, of in rates)
        return int(calls), Seen(errors, slow, outcomes)
    except (TypeError, ValueError):
        return None
