"""Converts WfFormat, the JSON format of the WfCommons project, into a pipeline with one `python` node
per task. Pure.

Source: https://github.com/wfcommons/WfFormat, schema versions 1.5 and 1.6. Tasks are in
`workflow.specification.tasks` (with parents and children), their runtimes in `workflow.execution.tasks`.
Raises InvalidInput with the field and the cure.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hocket.schemas.checks.faults import faults_of, refusal
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.node_parts import MAX_NODES, MAX_WAIT_MS
from hocket.schemas.pipeline.spec import MAX_TIMEOUT_MS
from hocket.schemas.subjects import TOKEN

REPLAY_HANDLER = "hocket.workers.replay:sleep"
"""Sleeps for as long as the task took."""
VERSIONS = ("1.5", "1.6")
MAX_NAME_CHARS = 63
PATIENCE = 4
"""A step may take this many times its expected duration, and a run this many times its critical path."""
DEFAULT_TIMEOUT_MS = 60_000
LEAST_SLO_MS = 60_000
SHOWN_TASKS = 5
"""How many tasks of a cycle an error names."""


def pipeline_of(
    document: Any,
    *,
    name: str | None = None,
    scale: float = 1.0,
    handler: str = REPLAY_HANDLER,
    details: bool = False,
) -> dict[str, Any]:
    """Return the pipeline document of a parsed WfFormat document.

    Runtimes are multiplied by `scale`. Each step's input has `task` (the task's id) and `seconds`
    (its scaled runtime); with `details` also `program`, `arguments`, `inputs` and `outputs`."""
    workflow = _workflow(document)
    tasks = {task.id: task for task in workflow.specification.tasks}
    parents = _parents(workflow.specification.tasks)
    executed = _executions(workflow.execution.tasks)
    order = _order(parents)
    names = _names(order)
    seconds = {task: _seconds(task, executed, scale, handler) for task in order}
    nodes = {
        names[task]: {
            "type": "python",
            "description": f"WfFormat task {task}",
            "handler": handler,
            "with": _input(tasks[task], executed.first.get(task), seconds[task], details=details),
            **_times(task, seconds[task]),
            **({"needs": [names[parent] for parent in parents[task]]} if parents[task] else {}),
        }
        for task in order
    }
    expected_ms = 1000 * _critical_path(order, parents, seconds)
    return {
        "pipeline": name if name is not None else _token(str(document.get("name") or "workflow")),
        "description": f"{len(order)} tasks of the WfFormat workflow {document.get('name', '')}",
        "slo_ms": min(MAX_WAIT_MS, max(LEAST_SLO_MS, math.ceil(PATIENCE * expected_ms))),
        "nodes": nodes,
        "output": {"tasks": len(order)},
    }


# ---- reading --------------------------------------------------------------------------------


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Task(_Part):
    id: str = Field(min_length=1)
    parents: tuple[str, ...]
    children: tuple[str, ...] = ()
    inputs: tuple[str, ...] = Field((), alias="inputFiles")
    outputs: tuple[str, ...] = Field((), alias="outputFiles")


class _Command(_Part):
    program: str = ""
    arguments: tuple[str, ...] = ()


class _Executed(_Part):
    id: str = Field(min_length=1)
    seconds: float = Field(alias="runtimeInSeconds", ge=0, allow_inf_nan=False)
    command: _Command = _Command()


class _Specification(_Part):
    tasks: tuple[_Task, ...] = Field(min_length=1)


class _Execution(_Part):
    tasks: tuple[_Executed, ...] = ()


class _Workflow(_Part):
    specification: _Specification
    execution: _Execution = _Execution()


def _workflow(document: Any) -> _Workflow:
    if not isinstance(document, Mapping):
        raise InvalidInput(
            field="(document)",
            reason="it is not a JSON object",
            cure="Provide a workflow instance in WfFormat.",
        )
    version = document.get("schemaVersion")
    if version not in VERSIONS:
        raise InvalidInput(
            field="schemaVersion",
            reason="it is missing" if version is None else f"`{version}` is not supported",
            cure=f"Provide a workflow in WfFormat {' or '.join(VERSIONS)}; WfCommons has a converter.",
        )
    if "workflow" not in document:
        raise InvalidInput(field="workflow", reason="it is missing", cure="Add it.")
    try:
        workflow = _Workflow.model_validate(document["workflow"])
    except ValidationError as error:
        # with dots, so that of a faulty list and its faulty entry only the entry is told
        found = faults_of(error, field_of=lambda place: ".".join(map(str, ("workflow", *place))))
        told = [fault._replace(field=_bracketed(fault.field)) for fault in found]
        raise refusal(InvalidInput, told) from None
    if len(workflow.specification.tasks) > MAX_NODES:
        raise InvalidInput(
            field=_place("workflow", "specification", "tasks"),
            reason=f"there are {len(workflow.specification.tasks)}; the limit for a pipeline is "
            f"{MAX_NODES} nodes",
            cure="Split the workflow into pipelines that call each other.",
        )
    return workflow


def _bracketed(field: str) -> str:
    return re.sub(r"\.([0-9]+)(?=\.|\Z)", r"[\1]", field)


def _place(*parts: str | int) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".")


# ---- the graph ------------------------------------------------------------------------------


def _parents(tasks: Sequence[_Task]) -> dict[str, tuple[str, ...]]:
    """Return the parents of each task, whichever end of an edge declares it."""
    found: dict[str, dict[str, None]] = {}
    for index, task in enumerate(tasks):
        if task.id in found:
            raise InvalidInput(
                field=_place("workflow", "specification", "tasks", index, "id"),
                reason=f"another task has the id `{task.id}`",
                cure="Give each task a unique id.",
            )
        found[task.id] = {}
    for index, task in enumerate(tasks):
        for side, others in (("parents", task.parents), ("children", task.children)):
            for place, other in enumerate(others):
                if other not in found:
                    raise InvalidInput(
                        field=_place("workflow", "specification", "tasks", index, side, place),
                        reason=f"there is no task `{other}`",
                        cure=f"Add the task, or remove it from the {side} of `{task.id}`.",
                    )
                parent, child = (other, task.id) if side == "parents" else (task.id, other)
                found[child][parent] = None
    return {task: tuple(parents) for task, parents in found.items()}


@dataclass(frozen=True, slots=True)
class _Executions:
    """The first execution of each task, and the places of the second ones in the document."""

    first: Mapping[str, _Executed]
    second: Mapping[str, int]


def _executions(tasks: Sequence[_Executed]) -> _Executions:
    first: dict[str, _Executed] = {}
    second: dict[str, int] = {}
    for index, task in enumerate(tasks):
        if task.id in first:
            second.setdefault(task.id, index)
        else:
            first[task.id] = task
    return _Executions(first, second)


def _order(parents: Mapping[str, Sequence[str]]) -> list[str]:
    try:
        return list(TopologicalSorter(parents).static_order())
    except CycleError as error:
        cycle = list(reversed(error.args[1]))
        shown = (
            cycle if len(cycle) <= SHOWN_TASKS else [*cycle[: SHOWN_TASKS - 1], "...", cycle[-1]]
        )
        raise InvalidInput(
            field=_place("workflow", "specification", "tasks"),
            reason=f"they have a cycle: {' -> '.join(shown)}",
            cure="Remove one of these edges.",
        ) from None


def _critical_path(
    order: Sequence[str], parents: Mapping[str, Sequence[str]], seconds: Mapping[str, float | None]
) -> float:
    ends: dict[str, float] = {}
    for task in order:
        begin = max((ends[parent] for parent in parents[task]), default=0.0)
        ends[task] = begin + (seconds[task] or 0.0)
    return max(ends.values())


# ---- nodes ----------------------------------------------------------------------------------


def _names(tasks: Sequence[str]) -> dict[str, str]:
    """Return a node name per task: its id converted to a valid name; duplicates are numbered."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for task in tasks:
        token = name = _token(task)
        number = 1
        while name in taken:
            number += 1
            end = f"-{number}"
            name = token[: MAX_NAME_CHARS - len(end)] + end
        taken.add(name)
        names[task] = name
    return names


def _token(text: str) -> str:
    """Convert a text into a name; a long text keeps its last words, which distinguish tasks."""
    token = re.sub(r"[^A-Za-z0-9_-]+", "_", text).lstrip("_-")
    if len(token) > MAX_NAME_CHARS:
        token = token[-MAX_NAME_CHARS:]
        token = token[token.find("_") + 1 :].lstrip("_-")
    return token if TOKEN.fullmatch(token) else "task"


def _seconds(task: str, executed: _Executions, scale: float, handler: str) -> float | None:
    """Return the scaled runtime of a task; None if it is not known, and the handler does without."""
    if task in executed.first and task not in executed.second:
        return round(executed.first[task].seconds * scale, 6)
    if handler != REPLAY_HANDLER:
        return None
    if task in executed.second:
        raise InvalidInput(
            field=_place("workflow", "execution", "tasks", executed.second[task], "id"),
            reason=f"the task `{task}` was executed twice; its runtime is not known",
            cure="Keep one execution, or name a handler that does its work (--handler).",
        )
    raise InvalidInput(
        field=_place("workflow", "execution", "tasks"),
        reason=f"the task `{task}` is missing, so its duration is not known",
        cure="Add it with its `runtimeInSeconds`, or name a handler that does its work (--handler).",
    )


def _input(
    task: _Task, executed: _Executed | None, seconds: float | None, *, details: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {"task": _literal(task.id)}
    if seconds is not None:
        found["seconds"] = seconds
    if details:
        command = executed.command if executed else _Command()
        found["program"] = _literal(command.program)
        found["arguments"] = [_literal(text) for text in command.arguments]
        found["inputs"] = [_literal(text) for text in task.inputs]
        found["outputs"] = [_literal(text) for text in task.outputs]
    return found


def _literal(text: str) -> str:
    """Make text that looks like a template one expression. Jinja reads Python's escapes."""
    if not any(mark in text for mark in ("{{", "{%", "{#")):
        return text
    return f"{{{{ {text!r} }}}}"


def _times(task: str, seconds: float | None) -> dict[str, Any]:
    if not seconds:
        return {}
    expected_ms = round(1000 * seconds, 3)
    if expected_ms > MAX_TIMEOUT_MS:
        raise InvalidInput(
            field="--scale",
            reason=f"the task `{task}` would take {seconds:.0f} s; the limit for a step is "
            f"{MAX_TIMEOUT_MS // 1000} s",
            cure="Scale the runtimes down.",
        )
    times: dict[str, Any] = {"expect": {"mean_ms": expected_ms}} if expected_ms else {}
    if PATIENCE * expected_ms > DEFAULT_TIMEOUT_MS:
        times["timeout_ms"] = min(MAX_TIMEOUT_MS, math.ceil(PATIENCE * expected_ms))
    return times
