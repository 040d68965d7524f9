"""Agents: loops whose rounds are calls of a model, and whose tools are steps below a round. All
that it spends is counted at the loop, and no attempt goes out beyond the agent's budget."""

from collections.abc import Iterator
from decimal import Decimal

from hocket.coordinator.core.run.state.run import ROUND, Step
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.pipeline.agents.turns import calls_of
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.spec import AgentNode


class AgentBudgetExhausted(HocketError):
    """The agent `{agent}` has spent {spent_usd} USD of its {budget_usd} USD on its model and its
    tools. Raise `budget_usd`, or have it do less."""

    code = "agent_budget_exhausted"
    error_class = ErrorClass.BUDGET


def calls_tools(step: Step, output: object) -> bool:
    """Tell whether a round's output calls tools; raise TurnInvalid if it is no valid turn."""
    agent = step.node.agent
    return agent is not None and bool(calls_of(agent, step.node.path, output))


def policy_of(agent: AgentNode) -> PlanPolicy:
    """Return the policy for the steps below a round."""
    return PlanPolicy(
        types=tuple({tool.node.type for tool in agent.tools.values()}),
        max_steps=agent.max_steps,
        max_items=agent.max_steps,
    )


def check_agents(step: Step) -> None:
    """Raise AgentBudgetExhausted where an agent that a step belongs to has no money left for it."""
    for loop, agent in _agents_around(step):
        budget_usd = agent.budget_usd
        assert loop.children is not None, loop.key
        spent_usd = loop.children.spent_usd
        if budget_usd is not None and 0 < spent_usd >= budget_usd:
            raise AgentBudgetExhausted(agent=loop.key, spent_usd=spent_usd, budget_usd=budget_usd)


def agents_left_usd(step: Step) -> list[Decimal]:
    """Return what is left of the budgets of the agents that a step belongs to."""
    left: list[Decimal] = []
    for loop, agent in _agents_around(step):
        assert loop.children is not None, loop.key
        if agent.budget_usd is not None:
            left.append(agent.budget_usd - loop.children.spent_usd)
    return left


def count_for_agents(step: Step, cost_usd: Decimal) -> None:
    """Add a step's cost to what the agents that it belongs to have spent."""
    for loop, _ in _agents_around(step):
        assert loop.children is not None, loop.key
        loop.children.spent_usd += cost_usd


def _agents_around(step: Step) -> Iterator[tuple[Step, AgentNode]]:
    """Yield the agents that a step is a round of, or works for, innermost first."""
    at: Step | None = step
    while at is not None:
        agent = at.node.agent
        if agent is not None and at.link == ROUND and at.parent is not None:
            yield at.parent, agent
        at = at.home
