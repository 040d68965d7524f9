"""What the steps that planners emitted may grow to: their policies' bounds, held while they run.

Each step that does work (a worker's, a sub-run, a wait) counts for the planner that emitted it and for
those around that one, whether it is an item, a round, a fallback or a node. So does what it spends.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from hocket.coordinator.core.run.state import Emitted, Role, Step
from hocket.coordinator.core.run.transition import RunTransition
from hocket.coordinator.core.structures.frozen import replace
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.pipeline.node_parts import PlanPolicy

WORKING = frozenset({Role.LEAF, Role.SUBRUN, Role.WAIT})


class PlanExceeded(HocketError):
    """The steps of planner `{planner}` go beyond its policy: {reason}. Raise `emit.{bound}`, or let it
    plan less."""

    code = "plan_exceeded"
    error_class = ErrorClass.INVALID


class PlanBudgetExhausted(HocketError):
    """The steps of planner `{planner}` have spent {spent_usd} USD of the {budget_usd} USD that its
    policy allows. Raise `emit.budget_usd`, or let it plan less."""

    code = "plan_budget_exhausted"
    error_class = ErrorClass.BUDGET


def count_step(u: RunTransition, step: Step) -> None:
    """Count a step that begins; raise PlanExceeded where a planner above it may have no more."""
    if not step.home or step.role not in WORKING:
        return
    exceeded: PlanExceeded | None = None
    for home in homes(step, u.steps):
        emitted: Emitted = u.emitted[home]
        u.emitted[home] = emitted = replace(emitted, begun=emitted.begun + 1)
        if emitted.begun > emitted.policy.max_steps:
            exceeded = _too_many_steps(home, emitted.policy)
    if exceeded is not None:
        raise exceeded


def check_items(u: RunTransition, step: Step, count: int) -> None:
    """Raise PlanExceeded where an emitted map would have more items than a policy above it allows."""
    for home in homes(step, u.steps):
        policy: PlanPolicy = u.emitted[home].policy
        if count > policy.max_items:
            raise PlanExceeded(
                planner=home,
                reason=f"a map has {count} items, and {policy.max_items} are allowed",
                bound="max_items",
            )
        if u.emitted[home].begun + count > policy.max_steps:
            raise _too_many_steps(home, policy)


def check_budget(u: RunTransition, step: Step) -> None:
    """Raise PlanBudgetExhausted where a planner above a step has no money left for it."""
    for home in homes(step, u.steps):
        emitted: Emitted = u.emitted[home]
        budget_usd = emitted.policy.budget_usd
        if budget_usd is not None and emitted.spent_usd > 0 and emitted.spent_usd >= budget_usd:
            raise PlanBudgetExhausted(
                planner=home, spent_usd=emitted.spent_usd, budget_usd=budget_usd
            )


def count_cost(u: RunTransition, step: Step, cost_usd: Decimal) -> None:
    """Add what an attempt of a step cost to what the planners above it spent."""
    for home in homes(step, u.steps):
        emitted: Emitted = u.emitted[home]
        u.emitted[home] = replace(emitted, spent_usd=emitted.spent_usd + cost_usd)


def homes(step: Step, steps: Mapping[str, Step]) -> Iterable[str]:
    """Yield the keys of the planners above a step, the innermost first."""
    home = step.home
    while home:
        yield home
        home = steps[home].home


def with_counts(emitted: dict[str, Emitted], steps: Mapping[str, Step]) -> dict[str, Emitted]:
    """Return what planners emitted with what their steps count, worked out from all steps of a run."""
    found = dict(emitted)
    for step in steps.values():
        if not step.home:
            continue
        begun = int(step.role in WORKING)
        spent_usd = sum((cost for _, _, cost in step.counted), Decimal(0))
        for home in homes(step, steps):
            one = found[home]
            found[home] = replace(one, begun=one.begun + begun, spent_usd=one.spent_usd + spent_usd)
    return found


def _too_many_steps(home: str, policy: PlanPolicy) -> PlanExceeded:
    return PlanExceeded(
        planner=home,
        reason=f"more than {policy.max_steps} steps would run",
        bound="max_steps",
    )
