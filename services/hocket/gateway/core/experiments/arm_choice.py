"""Experiments split the calls of a model among arms; a run keeps its arm for life.

An arm is another logical model or, as is usual for the control, the same one. The arm follows from
a hash of the run alone, so every gateway chooses the same one, even after a restart. The split is a
weighted rendezvous (Thaler and Ravishankar, 1998; with weights: Schindelhauer and Schomaker, 2005):
when a weight grows, only the runs that move to that arm change theirs. Runs of an arm that was
rolled back go to the control.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any

from hocket.gateway.core.config.fields import Fields, wrong
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.experiments.rollback_rule import RollbackRule
from hocket.schemas import ids
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.schemas.messages import Attribution, RunFinished
from hocket.schemas.pipeline.expressions import Evaluate, compile_expression, readings
from hocket.schemas.subjects import TOKEN

MAX_EXPERIMENTS = 64
MAX_ARMS = 8
MAX_EXPRESSION_CHARS = 2_000
MAX_WEIGHT = 1_000_000.0
NO_VERDICT = ("cancelled", "rejected")
"""Run outcomes that say nothing about the models."""
USUAL_SUCCESS = "run.status == 'succeeded'"

CONTROL = "control"
"""The default name of the control arm, because the order of a mapping cannot be relied on."""

_FIELDS = frozenset(
    {"model", "tenant", "pipeline", "node", "arms", "control", "succeeded", "rollback"}
)
_RULE_FIELDS = frozenset(
    {"min_calls", "window", "errors", "slow", "slow_factor", "outcomes", "most"}
)


@dataclass(frozen=True, slots=True)
class Arm:
    """A model, and the relative share (`weight`) of runs that it gets."""

    name: str
    model: str
    weight: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """A split of the calls of a model, for everyone or for one tenant, pipeline or node.

    The first arm is the control, wherever the configuration lists it. Without a `rollback` rule the
    arms are only compared.
    """

    name: str
    model: str
    arms: tuple[Arm, ...]
    tenant: str | None = None
    pipeline: str | None = None
    node: str | None = None
    rollback: RollbackRule | None = field(default_factory=RollbackRule)
    succeeded: str = USUAL_SUCCESS
    evaluate: Evaluate = field(
        default=compile_expression(USUAL_SUCCESS, "succeeded"), compare=False, repr=False
    )

    @property
    def control(self) -> Arm:
        """The arm that the others are compared with, and to which their runs return."""
        return self.arms[0]

    def concerns(self, who: Attribution) -> bool:
        """Tell whether calls with this attribution take part."""
        return (
            self.tenant in (None, who.tenant)
            and self.pipeline in (None, who.pipeline)
            and self.node in (None, who.node)
        )

    def arm_of(self, subject: str, off: Container[str] = ()) -> Arm:
        """Return the arm of a run, or of a call without one; `off` are the arms rolled back."""
        best, chosen = float("inf"), self.control
        for arm in self.arms:
            if arm.weight > 0:
                distance = -log(1.0 - ids.fraction("arm", self.name, arm.name, subject))
                if distance / arm.weight < best:
                    best, chosen = distance / arm.weight, arm
        return self.control if chosen.name in off else chosen

    def identity(self, arm: str) -> str:
        """Return a fingerprint of an arm's definition; what was learnt about the arm is valid while
        it stays the same."""
        models = {one.name: one.model for one in self.arms}
        scope = [self.model, self.tenant, self.pipeline, self.node]
        return ids.content_hash([self.name, scope, self.control.model, arm, models.get(arm)])[:16]

    def success_of(self, end: RunFinished) -> bool | None:
        """Return whether a run succeeded; None if its end says nothing.

        If the success expression fails, the run counts as unsuccessful.
        """
        if end.status in NO_VERDICT:
            return None
        run = {
            "status": end.status,
            "output": end.output,
            "error_code": None if end.error is None else end.error.code,
            "duration_ms": end.finished_at_ms - end.accepted_at_ms,
        }
        try:
            return bool(self.evaluate({"run": run}))
        except HocketError:
            return False


def read(
    section: Any, environment: Mapping[str, str], table: RoutingTable
) -> tuple[Experiment, ...]:
    """Return the experiments of an `experiments:` section; raise RoutingInvalid."""
    if section is None:
        return ()
    found = Fields(section, "experiments", environment)
    experiments = tuple(_experiment(str(name), found.under(str(name)), table) for name in found)
    if len(experiments) > MAX_EXPERIMENTS:
        raise wrong("experiments", "there are too many", f"Use up to {MAX_EXPERIMENTS}.")
    return experiments


def _experiment(name: str, entry: Fields, table: RoutingTable) -> Experiment:
    entry.only(_FIELDS)
    if not TOKEN.fullmatch(name):
        cure = "Use 1 to 63 letters, digits, `-` or `_`."
        raise wrong(entry.where, f"`{name}` is not a name", cure)
    model = _model(entry, "model", table)
    arms = entry.under("arms")
    read_arms = tuple(_arm(str(arm), arms.under(str(arm)), model, table) for arm in arms)
    if not 2 <= len(read_arms) <= MAX_ARMS:
        cure = f"Define 2 to {MAX_ARMS} arms, one of them the control."
        raise wrong(arms.where, f"there are {len(read_arms)}", cure)
    control = _optional(entry, "control") or CONTROL
    if control not in {arm.name for arm in read_arms}:
        cure = f"Name one of the arms, or call one `{CONTROL}`."
        raise wrong(entry.at("control"), f"there is no arm `{control}`", cure)
    read_arms = tuple(sorted(read_arms, key=lambda arm: arm.name != control))
    if not sum(arm.weight for arm in read_arms):
        raise wrong(arms.where, "all weights are 0", "Give one a weight above 0.")
    succeeded = _optional(entry, "succeeded") or USUAL_SUCCESS
    return Experiment(
        name,
        model,
        read_arms,
        tenant=_optional(entry, "tenant"),
        pipeline=_optional(entry, "pipeline"),
        node=_optional(entry, "node"),
        rollback=_rule(entry),
        succeeded=succeeded,
        evaluate=_success(succeeded, entry.at("succeeded")),
    )


def _optional(entry: Fields, name: str) -> str | None:
    return entry.text(name) if name in entry else None


def _arm(name: str, entry: Fields, model: str, table: RoutingTable) -> Arm:
    entry.only({"model", "weight"})
    if not TOKEN.fullmatch(name):
        cure = "Use 1 to 63 letters, digits, `-` or `_`."
        raise wrong(entry.where, f"`{name}` is not a name", cure)
    if "weight" not in entry:
        raise wrong(entry.at("weight"), "it is missing", "Set `weight` to the arm's share.")
    weight = entry.number("weight", 0.0, 0.0, MAX_WEIGHT)
    return Arm(name, _model(entry, "model", table) if "model" in entry else model, weight)


def _model(entry: Fields, name: str, table: RoutingTable) -> str:
    model = table.aliases.get(entry.text(name), entry.text(name))
    if model not in table.models:
        cure = f"Use one of: {', '.join(table.names())}."
        raise wrong(entry.at(name), f"there is no model `{model}`", cure)
    return model


def _rule(entry: Fields) -> RollbackRule | None:
    if entry.raw("rollback") is False:
        return None
    found = entry.under("rollback")
    found.only(_RULE_FIELDS)
    usual = RollbackRule()
    window = found.count("window", usual.window, "calls", least=10, most=10_000)
    return RollbackRule(
        min_calls=found.count("min_calls", usual.min_calls, "calls", least=5, most=window),
        window=window,
        errors=found.number("errors", usual.errors, 0.0, 1.0),
        slow=found.number("slow", usual.slow, 0.0, 1.0),
        slow_factor=found.number("slow_factor", usual.slow_factor, 1.0, 1_000.0),
        outcomes=found.number("outcomes", usual.outcomes, 0.0, 1.0),
        most=found.number("most", usual.most, 0.0, 1.0),
    )


def _success(text: str, where: str) -> Evaluate:
    if len(text) > MAX_EXPRESSION_CHARS:
        raise wrong(where, "it is too long", f"Use up to {MAX_EXPRESSION_CHARS} characters.")
    try:
        names = {name for one in readings(text, where, expression=True) for name in one.names}
        evaluate = compile_expression(text, where)
    except InvalidInput as error:
        cure = "Write for example `run.output.verified`."
        raise wrong(where, error.fields["reason"], cure) from None
    if names - {"run"}:
        raise wrong(where, f"it reads {', '.join(sorted(names))}", "Use only `run`.")
    return evaluate
