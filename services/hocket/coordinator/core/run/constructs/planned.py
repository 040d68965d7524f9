"""Planners that emit steps (`planning` with `emit`), and rounds of agents whose model calls tools.
Their sub-graph is spliced in under them, within the bounds of their policy, which is enforced while
it runs.

Each step that does work (a worker's, a sub-run, a wait) counts towards the planner that emitted it
and those around that one, whether it is an item, a round, a fallback or a node. So does what it
spends.
"""

from collections.abc import Iterator
from decimal import Decimal

from hocket.coordinator.core.run.constructs.containers.agents import (
    agents_left_usd,
    calls_tools,
    check_agents,
    count_for_agents,
    policy_of,
)
from hocket.coordinator.core.run.plan.nodes import LEAF, SUBRUN, WAIT, CompiledPlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.run import Emitted, Run, Step
from hocket.coordinator.core.run.state.values import Json
from hocket.coordinator.core.time.duration_estimates import emitted_outlook
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.plan import compile_emitted, compile_turn


class PlanExceeded(HocketError):
    """The steps of planner `{planner}` exceed its policy: {reason}. Raise `emit.{bound}`, or have it
    plan less."""

    code = "plan_exceeded"
    error_class = ErrorClass.INVALID


class AgentStepsExceeded(PlanExceeded):
    """The tools that agent `{agent}` called in round `{planner}` exceed its `{bound}`: {reason}. Raise
    `{bound}`, or have them do less."""


class PlanBudgetExhausted(HocketError):
    """The steps of planner `{planner}` have spent {spent_usd} USD of the {budget_usd} USD that its
    policy allows. Raise `emit.budget_usd`, or have it plan less."""

    code = "plan_budget_exhausted"
    error_class = ErrorClass.BUDGET


WORKING = (LEAF, SUBRUN, WAIT)


def emits(step: Step, output: Json) -> bool:
    """Tell whether steps are made from a step's output; raise TurnInvalid if it cannot be the
    output of an agent's round."""
    return step.node.emit is not None or calls_tools(step, output.value)


def emitted_by(step: Step, output: Json, *, degrades: bool, applied: bool = False) -> Emitted:
    """Compile what a planner emitted or an agent's model called; raise PlanRefused if it breaks the
    policy, TurnInvalid if it is malformed. `applied`: it was accepted before."""
    node = step.node
    if node.agent is not None:
        policy = policy_of(node.agent)
        scope, by_path = compile_turn(node.agent, output.value, path=node.path)
    else:
        assert node.emit is not None, step.key
        policy = node.emit
        scope, by_path = compile_emitted(output.value, policy, path=node.path, applied=applied)
    plan = CompiledPlan(scope, by_path)
    forecast = PlanForecast(plan, emitted_outlook(scope, degrades=degrades))
    return Emitted(output, plan, forecast, policy)


def count_step(step: Step) -> None:
    """Count a step that begins; raise PlanExceeded if a planner above it has reached its bound."""
    if step.home is None or step.role not in WORKING:
        return
    exceeded: PlanExceeded | None = None
    for home, emitted in planners_above(step):
        emitted.begun += 1
        if emitted.begun > emitted.policy.max_steps:
            exceeded = _too_many_steps(home, emitted.policy)
    if exceeded is not None:
        raise exceeded


def check_items(step: Step, count: int) -> None:
    """Raise PlanExceeded where an emitted map would have more items than a policy above it
    allows."""
    for home, emitted in planners_above(step):
        policy = emitted.policy
        if count > policy.max_items:
            reason = f"a map has {count} items; the limit is {policy.max_items}"
            raise _exceeded(home, reason, "max_items")
        if emitted.begun + count > policy.max_steps:
            raise _too_many_steps(home, policy)


def check_budget(step: Step) -> None:
    """Raise PlanBudgetExhausted where a planner above a step has no money left for it, and
    AgentBudgetExhausted where an agent has none."""
    check_agents(step)
    for home, emitted in planners_above(step):
        budget_usd = emitted.policy.budget_usd
        if budget_usd is not None and emitted.spent_usd > 0 and emitted.spent_usd >= budget_usd:
            raise PlanBudgetExhausted(
                planner=home.key, spent_usd=emitted.spent_usd, budget_usd=budget_usd
            )


def left_usd(run: Run, step: Step) -> Decimal | None:
    """Return what is left for a step of the budgets of its run, and of the planners and agents that it
    works for; None if none of them has a budget."""
    left = [] if run.budget_usd is None else [run.budget_usd - run.cost_usd]
    left += agents_left_usd(step)
    for _, emitted in planners_above(step):
        if emitted.policy.budget_usd is not None:
            left.append(emitted.policy.budget_usd - emitted.spent_usd)
    return min(left) if left else None


def count_cost(step: Step, cost_usd: Decimal) -> None:
    """Add the cost of a step's attempt to what the planners and agents above it have spent."""
    count_for_agents(step, cost_usd)
    for _, emitted in planners_above(step):
        emitted.spent_usd += cost_usd


def count_restored(step: Step) -> None:
    """Count a restored step and what it spent."""
    spent_usd = sum((cost for _, _, cost in step.counted), Decimal(0))
    count_for_agents(step, spent_usd)
    for _, emitted in planners_above(step):
        emitted.begun += step.role in WORKING
        emitted.spent_usd += spent_usd


def planners_above(step: Step) -> Iterator[tuple[Step, Emitted]]:
    """Yield the planners above a step with what they emitted, the innermost first."""
    home = step.home
    while home is not None:
        assert home.emitted is not None, home.key
        yield home, home.emitted
        home = home.home


def _too_many_steps(home: Step, policy: PlanPolicy) -> PlanExceeded:
    return _exceeded(home, f"more than {policy.max_steps} steps would run", "max_steps")


def _exceeded(home: Step, reason: str, bound: str) -> PlanExceeded:
    """Return the error for a planner, or for an agent, whose one bound holds for items, too."""
    if home.node.agent is None:
        return PlanExceeded(planner=home.key, reason=reason, bound=bound)
    agent = home.key if home.parent is None else home.parent.key
    return AgentStepsExceeded(agent=agent, planner=home.key, reason=reason, bound="max_steps")
