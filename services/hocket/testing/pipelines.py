"""Reads the pipelines of a play, and checks them against the node types of its workers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hocket.admin.node_types.checks import checked
from hocket.admin.node_types.registry import NodeTypes
from hocket.coordinator.core.run.state.run import KEY_MARKS
from hocket.schemas.pipeline.document import parse_document
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from hocket.testing.errors import NotPlayable, UnknownStep
from hocket.testing.stand_ins.clock import START_S
from hocket.worker.node_type import NodeType

Source = Mapping[str, Any] | str | Path
"""A pipeline: its fields, or its file."""


def plans_of(pipelines: Sequence[Source], types: Iterable[NodeType]) -> list[Plan]:
    """Return the plans of pipelines; raise InvalidPipeline, or NotPlayable if a file is missing."""
    known = NodeTypes()
    for one in types:
        known.types.described(one.described("play"), START_S * 1000)
    return [checked(compile_pipeline(_document(one)), known)[0] for one in pipelines]


def check_node(plans: Collection[Plan], name: str) -> None:
    """Raise UnknownStep if no plan can have steps of such a node or type."""
    if not any(name == node.node.type for plan in plans for node in plan.by_path.values()):
        check_step(plans, name)


def check_step(plans: Collection[Plan], step: str) -> None:
    """Raise UnknownStep if no plan can have such a step."""
    paths = [path for plan in plans for path in plan.by_path]
    bare = _path_of(step)
    if bare in paths or any(path.startswith(f"{bare}/") for path in paths):
        return
    marked = tuple(f"{path}{mark}" for path in paths for mark in KEY_MARKS)
    if not step.startswith(marked):  # otherwise a planner may emit it
        raise UnknownStep(step=step, known=", ".join(paths[:20]))


def _document(source: Source) -> Any:
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    if not path.is_file():
        raise NotPlayable(
            step=str(path), reason="there is no such file", cure="Name a pipeline's file."
        )
    return parse_document(path.read_bytes())


def _path_of(step: str) -> str:
    """Return the path of a step's node as far as its key shows it: without items and rounds."""
    parts = []
    for part in step.split("/"):
        name = part.partition("[")[0]
        parts.append(name.partition("#")[0])
    return "/".join(parts)
