"""How the prompt of the next node begins, as far as it is known while the steps before it still run.

When a step begins, the `llm` nodes that wait for it and have `prefill` are looked at. What their `with`
takes from the run's input and from steps that are done is known; the prompt is rendered until it reads
something that is not. A node is told of once: when the last of what it needs begins. Nodes with `map` or
`loop`, and those that wait for another node to begin, are not.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hocket.coordinator.core.run.commands import ExpectPrompt
from hocket.coordinator.core.run.state import TERMINAL, ParentRelation, Step
from hocket.coordinator.core.run.transition import RunTransition, child_key
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.schemas.messages import NO_REQUIREMENTS, ChatMessage, PromptExpected, Requirements
from hocket.schemas.pipeline.expressions import (
    Evaluate,
    compile_value,
    fails_later,
    known_head,
    readings,
)
from hocket.schemas.pipeline.plan import NodePlan
from hocket.schemas.pipeline.spec import LlmNode
from hocket.schemas.templates.budget import Names

MIN_CHARS = 1_024
"""Shorter beginnings are not worth a call."""
MAX_CHARS = 400_000
"""Longer ones do not fit into a message of the bus."""


def expect_prompt(u: RunTransition, step: Step, plan: NodePlan) -> None:
    """Tell of the nodes that wait for a step that begins now."""
    if step.link is not ParentRelation.NODE:
        return
    nodes = u.scope_plan(step.parent).nodes
    for name in plan.dependents:
        next_plan = nodes[name]
        node = next_plan.node
        if not isinstance(node, LlmNode) or not node.prefill or node.map or node.loop:
            continue
        if all(child_key(step.parent, need) in u.steps for need in next_plan.needs):
            _tell(u, step.parent, next_plan, node)


def _tell(u: RunTransition, scope: str, plan: NodePlan, node: LlmNode) -> None:
    known = Names(u.account, {"input": _known_input(u, scope, plan)})
    messages: list[ChatMessage] = []
    whole = True
    if node.system:
        text, whole = known_head(node.system, known)
        messages.append(ChatMessage(role="system", content=text))
    if whole:
        text, _ = known_head(node.prompt, known)
        messages.append(ChatMessage(role="user", content=text))
    if not MIN_CHARS <= sum(len(message.content) for message in messages) <= MAX_CHARS:
        return
    run = u.run
    requires = node.requires
    u.commands.append(
        ExpectPrompt(
            PromptExpected(
                tenant=run.tenant,
                pipeline=run.pipeline,
                version=run.version,
                run_id=run.run_id,
                node=plan.path,
                model=node.model,
                messages=tuple(messages),
                requires=Requirements.model_validate(requires.model_dump())
                if requires
                else NO_REQUIREMENTS,
                deadline_at_ms=run.deadline_at_ms,
                budget_usd=run.budget_usd,
                budget_left_usd=None
                if run.budget_usd is None
                else max(run.budget_usd - run.spent_usd, run.budget_usd * 0),
            )
        )
    )


def _known_input(u: RunTransition, scope: str, plan: NodePlan) -> dict[str, Any]:
    """Return the fields of a node's input that are known now."""
    done = {
        need
        for need in plan.needs
        if (found := u.steps.get(child_key(scope, need))) is not None and found.state in TERMINAL
    }
    names = u.names(scope)
    if plan.node.with_ is None:
        outputs = {need: names["nodes"][need]["output"] for need in done}
        return {"input": names["input"]} | outputs
    known: dict[str, Any] = {}
    for field, evaluate, reads in _fields(plan):
        if reads <= done:
            try:
                known[field] = evaluate(names)
            except HocketError:  # the node itself will say so
                continue
    return known


@lru_cache(maxsize=1_024)
def _fields(plan: NodePlan) -> tuple[tuple[str, Evaluate, frozenset[str]], ...]:
    """Return the fields of a node's `with`, each with the nodes that it reads."""
    given = plan.node.with_
    if not isinstance(given, Mapping):
        return ()
    return tuple(
        (
            str(name),
            _compiled(value, f"with.{name}"),
            frozenset(
                node for reading in readings(value, name, applied=True) for node in reading.nodes
            ),
        )
        for name, value in given.items()
    )


def _compiled(value: Any, field: str) -> Evaluate:
    try:
        return compile_value(value, field)
    except InvalidInput as error:
        return fails_later(error)
