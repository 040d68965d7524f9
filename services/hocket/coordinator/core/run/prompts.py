"""How the prompt of the next node begins (`prefill`), as far as it is known while the steps before
it run.

When a step begins, the `llm` nodes with `prefill` that wait for it are examined. What their `with`
takes from the run's input and from finished steps is known; the prompt is rendered up to the first
value that is not. A node is announced once: when the last of the steps that it needs begins. Nodes
with `map` or `loop`, and those that wait for another node to begin, are not announced.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hocket.coordinator.core.run.commands import ExpectPrompt
from hocket.coordinator.core.run.plan.nodes import Node
from hocket.coordinator.core.run.state.messages import root_budget_of
from hocket.coordinator.core.run.state.names import input_of, names_in
from hocket.coordinator.core.run.state.run import NODE, TERMINAL, ScopeProgress, Step
from hocket.coordinator.core.run.transition import Transition
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.schemas.messages import NO_REQUIREMENTS, ChatMessage, PromptExpected, Requirements
from hocket.schemas.pipeline.expressions import (
    Evaluate,
    Head,
    compile_head,
    compile_value,
    fails_later,
    readings,
)
from hocket.schemas.pipeline.plan import NodePlan
from hocket.schemas.pipeline.spec import LlmNode
from hocket.schemas.templates.budget import Names

MIN_CHARS = 1_024
"""Shorter beginnings are not worth a call."""
MAX_CHARS = 400_000
"""Longer ones do not fit into a message of the bus."""


def expect_prompt(t: Transition, step: Step) -> None:
    """Announce the nodes that wait for a step that begins now."""
    if step.link != NODE:
        return
    within = step.within
    for place in step.node.prefills:
        node = within.plan.nodes[place]
        if _have_begun(within, node):
            _tell(t, within, node)


def _have_begun(within: ScopeProgress, node: Node) -> bool:
    """Tell whether all needs of a node have begun. This is asked as often as it has needs, so each
    of them is looked for only until it has begun."""
    if within.begun is None:
        within.begun = {}
    needs = node.needs
    place = within.begun.get(node.place, 0)
    while place < len(needs) and within.steps[needs[place]] is not None:
        place += 1
    within.begun[node.place] = place
    return place == len(needs)


def _tell(t: Transition, within: ScopeProgress, node: Node) -> None:
    spec = node.spec
    assert isinstance(spec, LlmNode)
    known = Names(t.account, {"input": _known_input(t, within, node)})
    messages: list[ChatMessage] = []
    whole = True
    system, prompt = _heads(node, spec)
    if spec.system:
        text, whole = system(known)
        messages.append(ChatMessage(role="system", content=text))
    if whole:
        text, _ = prompt(known)
        messages.append(ChatMessage(role="user", content=text))
    if not MIN_CHARS <= sum(len(message.content) for message in messages) <= MAX_CHARS:
        return
    run, requires = t.run, spec.requires
    budget_usd = run.budget_usd
    left_usd = None if budget_usd is None else max(budget_usd - run.cost_usd, budget_usd * 0)
    t.commands.append(
        ExpectPrompt(
            PromptExpected(
                tenant=run.tenant,
                pipeline=run.pipeline,
                version=run.version,
                run_id=run.run_id,
                node=node.path,
                model=spec.model,
                messages=tuple(messages),
                requires=Requirements.model_validate(requires.model_dump())
                if requires
                else NO_REQUIREMENTS,
                deadline_at_ms=run.deadline_seen_at_ms(t.now_ms),
                budget_usd=budget_usd,
                budget_left_usd=left_usd,
                root_budget=root_budget_of(run),
            )
        )
    )


def _heads(node: Node, spec: LlmNode) -> tuple[Head, Head]:
    """Return what renders the beginnings of a node's system text and prompt, compiled once: that takes
    up to 50 ms, and no expression counts it."""
    if node.heads is None:
        node.heads = (compile_head(spec.system or ""), compile_head(spec.prompt))
    heads: tuple[Head, Head] = node.heads
    return heads


def _known_input(t: Transition, within: ScopeProgress, node: Node) -> dict[str, Any]:
    """Return the fields of a node's input that are known now."""
    done: dict[str, Step] = {}
    for place in node.needs:
        step = within.steps[place]
        if step is not None and step.state in TERMINAL:
            done[step.node.name] = step
    if node.spec.with_ is None:
        outputs = {name: step.output.value for name, step in done.items()}
        return {"input": input_of(t.run, within).value} | outputs
    names = names_in(t, within)
    known: dict[str, Any] = {}
    for field, evaluate, reads in _fields(node.plan):
        if reads <= done.keys():
            try:
                known[field] = evaluate(names)
            except HocketError:  # the node itself will report it
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
