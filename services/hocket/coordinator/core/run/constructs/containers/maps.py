"""Maps (`map`): run the node once for each item of a list, a bounded number at a time; the output
is the list of their outputs. Where money is limited, fewer may run at once (`item_prices.py`)."""

from hocket.coordinator.core.run.constructs.containers.item_prices import may_start, note_price
from hocket.coordinator.core.run.constructs.planned import check_items
from hocket.coordinator.core.run.constructs.sub_runs import check_map_of_runs
from hocket.coordinator.core.run.ends.ending import fail_run
from hocket.coordinator.core.run.run_size import MAX_RUN_STATE_BYTES, RunTooLarge, ValueTooDeep
from hocket.coordinator.core.run.state.names import names_at
from hocket.coordinator.core.run.state.run import FAILED, ITEM, SUCCEEDED, Children, Step
from hocket.coordinator.core.run.state.values import json_of
from hocket.coordinator.core.run.transition import START, Transition
from hocket.schemas.checks.large_values import is_reference
from hocket.schemas.errors import InvalidInput

ITEM_OPERATIONS = 100
"""Operations charged for queueing an item of a map, before it begins (`templates/budget.py`)."""


def open_map(t: Transition, step: Step) -> None:
    """Evaluate the list, and start as many items as may run at a time."""
    node = step.node
    spec, over = node.spec.map, node.plan.over
    assert spec is not None, step.key
    assert over is not None, step.key
    items = over(names_at(t, step))
    _check_list(f"nodes.{node.path}.map.over", items, spec.max_items)
    check_items(step, len(items))
    check_map_of_runs(t, step, len(items))
    made = json_of(items)
    _ = made.size
    step.input = made
    t.keep(step)
    if not items:
        t.settle(step, SUCCEEDED, output=json_of([]))
        return
    step.children = Children(started=0, running=0)
    _start_items(t, step, step.children)
    t.account.spend(ITEM_OPERATIONS * step.children.started)


def item_settled(t: Transition, parent: Step, child: Step) -> None:
    """Start the next item, or end the map with the last one."""
    spec, children = parent.node.spec.map, parent.children
    assert spec is not None, parent.key
    assert children is not None, parent.key
    if child.state == FAILED and spec.on_item_error == "fail":
        assert child.error is not None, child.key
        if parent.key not in t.failing:  # only once, however many items fail together
            t.fail(parent, child.error)
        return
    if (child.state == FAILED or child.degraded) and not parent.degraded:
        parent.degraded = True
        t.keep(parent)
    note_price(parent, child)
    children.running -= 1
    started = children.started
    _start_items(t, parent, children)
    if children.started > started + 1:
        t.account.spend(ITEM_OPERATIONS * (children.started - started - 1))
    if not children.running:
        _join(t, parent, children)


def _join(t: Transition, parent: Step, children: Children) -> None:
    """Give a map the list of its items' outputs. A list that the run has no room for is never
    built: its row alone would hold up what is committed with it."""
    size_bytes = t.run.size_bytes + sum(item.output.size for item in children.steps)
    if size_bytes > MAX_RUN_STATE_BYTES:
        too_large = RunTooLarge(size_bytes=size_bytes, limit_bytes=MAX_RUN_STATE_BYTES)
        fail_run(t, too_large.info())
        return
    outputs = json_of([item.output.value for item in children.steps])
    try:
        _ = outputs.size
    except ValueTooDeep as error:
        t.fail(parent, error.info())
        return
    t.settle(parent, SUCCEEDED, output=outputs)


def _start_items(t: Transition, step: Step, children: Children) -> None:
    """Start as many items as may run beside those that are running."""
    spec = step.node.spec.map
    assert spec is not None, step.key
    most = min(len(step.input.value), children.started + spec.concurrency - children.running)
    first = children.started
    while children.started < most and may_start(t.run, step, children.running):
        children.started += 1
        children.running += 1
    for index in range(first, children.started):
        _start_item(t, step, index)


def _start_item(t: Transition, step: Step, index: int) -> None:
    node = step.node
    key = f"{step.key}[{index}]"
    item = Step(key, node, node.role_in_map, ITEM, step, step.within, index, t.now_ms)
    t.todo.append((START, item, None))


def _check_list(field: str, items: object, max_items: int) -> None:
    """Raise InvalidInput for a value that cannot be mapped over."""
    if is_reference(items):
        raise InvalidInput(
            field=field,
            reason="it returns a reference to a large value, which only workers can read",
            cure="Map over a list that fits in a message: of keys, pages or references.",
        )
    if not isinstance(items, list):
        raise InvalidInput(
            field=field,
            reason=f"it returns a {type(items).__name__}, not a list",
            cure="Map over a list.",
        )
    if len(items) > max_items:
        raise InvalidInput(
            field=field,
            reason=f"it returns {len(items)} items, but max_items is {max_items}",
            cure="Raise `max_items` or map over fewer.",
        )
