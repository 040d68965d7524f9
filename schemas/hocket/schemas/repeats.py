"""The rules for repeating a run, which every door checks before it accepts a retry or re-run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.messages import RunOrigin
from hocket.schemas.pipeline.expressions import readings
from hocket.schemas.pipeline.plan import NodePlan, Plan, complete_input

MAX_STEP_KEY_CHARS = 1_000
MAX_STEP_INPUT_CHARS = 65_536
"""The limit on a step's edited input, which is carried in a header."""

_ITEM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[([0-9]+)\]")
"""The beginning of the key of a step in a map at the top of a pipeline: its node, and the item."""


class RunOpen(HocketError):
    """Run `{run_id}` has not ended, so it cannot be repeated yet. Wait until it ends, or cancel it:
    `hocket runs cancel {run_id}`."""

    code = "run_open"
    error_class = ErrorClass.INVALID


class NothingToRetry(HocketError):
    """Run `{run_id}` succeeded, so there is nothing to retry. Run it again from a step or with another
    input: `hocket runs rerun {run_id}`."""

    code = "nothing_to_retry"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class StepPlace:
    """The place of a step of the origin: its node's path, its role, and the key of the planning step
    that emitted its node ("" for nodes of the spec)."""

    path: str
    role: str
    home: str


def check_repeat(
    asked: RunOrigin,
    *,
    status: str,
    from_step: StepPlace | None,
    plan: Plan,
    version: int,
    run_input: Mapping[str, Any],
) -> None:
    """Raise RunOpen, NothingToRetry or InvalidInput if a run that ended with `status` cannot be repeated
    in this way with this version and this input; `from_step` is the place of the step of that name, if
    any."""
    if status == "running":
        raise RunOpen(run_id=asked.run_id)
    if asked.operation == "retry":
        if asked.from_step is not None:
            raise InvalidInput(
                field="from_step",
                reason="a retry starts where the run failed",
                cure="Leave it out, or re-run the run from that step.",
            )
        if status == "succeeded":
            raise NothingToRetry(run_id=asked.run_id)
    if asked.from_step is None:
        if asked.step_input is not None:
            raise InvalidInput(
                field="step_input",
                reason="it has an input but no step",
                cure="Name the step in `from_step`; `input` is that of the run.",
            )
        return
    _check_step(asked, from_step, plan, version)
    _check_item(asked.from_step, plan, run_input)


def with_edit(asked: RunOrigin, before: RunOrigin | None) -> RunOrigin:
    """Return what a run asked for, with the edited input of a step of its origin (`before` is what the
    origin repeated), if it is a retry: otherwise that step would run again, with the input that the
    edit replaced."""
    if asked.operation != "retry" or before is None or before.step_input is None:
        return asked
    edit = {"from_step": before.from_step, "step_input": before.step_input}
    return asked.model_copy(update=edit)


def _check_step(asked: RunOrigin, place: StepPlace | None, plan: Plan, version: int) -> None:
    if place is None:
        raise InvalidInput(
            field="from_step",
            reason=f"run `{asked.run_id}` has no step `{asked.from_step}`",
            cure=f"Use one that `hocket runs show {asked.run_id}` lists.",
        )
    if not place.home and place.path not in plan.by_path:
        raise InvalidInput(
            field="from_step",
            reason=f"version {version} of `{plan.pipeline.pipeline}` has no node `{place.path}`",
            cure="Choose a step that both versions have.",
        )
    if asked.step_input is not None and place.role in ("map", "loop"):
        raise InvalidInput(
            field="step_input",
            reason=f"`{asked.from_step}` is a {place.role}, whose steps have their own inputs",
            cure=f"Choose one of its steps, such as `{asked.from_step}"
            f"{'[0]' if place.role == 'map' else '#1'}`.",
        )


def _check_item(from_step: str, plan: Plan, run_input: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a step is of an item that its map does not have with this input. That is
    known for maps at the top of a pipeline whose list depends on the input alone."""
    found = _ITEM.match(from_step)
    node = plan.root.nodes.get(found[1]) if found else None
    if found is None or node is None or not _maps_input(node):
        return
    assert node.over is not None, node.path
    try:
        items = node.over({"input": complete_input(plan, dict(run_input))})
    except HocketError:  # the run ends with this error
        return
    if isinstance(items, list) and int(found[2]) >= len(items):
        raise InvalidInput(
            field="from_step",
            reason=f"with this input, the map `{node.name}` has {len(items)} items, and"
            f" `{from_step}` is of none of them",
            cure=f"Choose `{node.name}`, or one of its items, which are counted from 0.",
        )


def _maps_input(node: NodePlan) -> bool:
    spec = node.node.map
    if spec is None or node.over is None:
        return False
    read = readings(spec.over, "map.over", expression=True, applied=True)
    return all(one.names <= {"input"} for one in read)
