"""How many items of a map run at once where money is limited.

What a step charges beside model calls is known once it has ended, and no gateway checks it in
advance. So that a map does not spend its budget many times over before the first item is counted,
at most MAX_UNPRICED of its items run until one has told what an item charges. From then on as many
run as what is left pays for, by what the ended items charged on average; at least one.
"""

from decimal import Decimal

from hocket.coordinator.core.run.constructs.planned import left_usd
from hocket.coordinator.core.run.plan.nodes import LEAF, WAIT, Node
from hocket.coordinator.core.run.state.run import SUCCEEDED, TERMINAL, Children, Run, Step

MAX_UNPRICED = 4
"""The most items of a map that run at once as long as it is unknown what they charge."""
_MODELS_ONLY = frozenset({"llm", "planning", "retrieval", "sql"})
"""Node types that spend money on nothing but model calls, which gateways hold to the budget."""


def may_start(run: Run, parent: Step, running: int) -> bool:
    """Tell whether one more item of a map may start beside those that are running. One that has no
    money left starts too: it fails with the reason."""
    left = left_usd(run, parent) if running else None
    if left is None or not _may_charge(parent.node):
        return True
    children = parent.children
    if children is None or not children.priced:
        return running < MAX_UNPRICED
    return left <= 0 or not children.charged_usd or _costs(children, running) < left


def note_price(parent: Step, item: Step) -> None:
    """Note what an ended item charged."""
    children = parent.children
    assert children is not None, parent.key
    if children.priced is None:  # the first one, or the run was read back
        children.priced = 0
        for one in children.steps:
            if one.state in TERMINAL:
                _add(children, one)
    else:
        _add(children, item)


def _add(children: Children, item: Step) -> None:
    """Count an item, unless it tells nothing: its output was cached, or it failed before it charged."""
    usd = _charged_usd(item)
    assert children.priced is not None
    if usd or (item.state == SUCCEEDED and item.source is None):
        children.priced += 1
        children.charged_usd += usd


def _costs(children: Children, items: int) -> Decimal:
    assert children.priced
    return children.charged_usd / children.priced * items


def _charged_usd(item: Step) -> Decimal:
    """Return what an item and the steps below it charged."""
    usd = Decimal(0)
    todo: list[Step | None] = [item]
    while todo:
        step = todo.pop()
        if step is None:
            continue
        usd += step.charged_usd
        if step.scope is not None:
            todo += step.scope.steps
        if step.children is not None:
            todo += step.children.steps
        todo += step.fallbacks or ()
    return usd


def _may_charge(node: Node) -> bool:
    """Tell whether a node, or one inside it, may charge for something that is no model call. Items that
    wait for a person or a moment are not held back for that: it may take days until one has ended."""
    inside = node.branches if node.body is None else node.body.nodes
    if inside:
        return any(map(_may_charge, inside)) and not any(map(_waits, inside))
    return node.role_in_round == LEAF and node.agent is None and node.type not in _MODELS_ONLY


def _waits(node: Node) -> bool:
    """Tell whether a node, or one inside it, is a wait."""
    inside = node.branches if node.body is None else node.body.nodes
    return node.role_in_round == WAIT or any(map(_waits, inside))
