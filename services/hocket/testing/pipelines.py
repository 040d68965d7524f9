"""Reads the pipelines of a play, and checks them against the node types of its workers."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any

from hocket.admin.node_types.checks import checked
from hocket.admin.node_types.registry import NodeTypes
from hocket.admin.pipelines.awaited_names import ITEM_OR_ROUND, awaited_by, emits, in_order
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.document import parse_document
from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS
from hocket.schemas.pipeline.plan import NodePlan, Plan, compile_pipeline
from hocket.schemas.pipeline.spec import ApprovalNode, PipelineNode, SignalNode, runs_in_worker
from hocket.testing.errors import NoAttempts, NotPlayable, UnknownSignal, UnknownStep
from hocket.testing.stand_ins.catalog import PlayedCatalog
from hocket.testing.stand_ins.clock import START_S
from hocket.worker.node_type import NodeType

Source = Mapping[str, Any] | str | Path
"""A pipeline: its fields, or its file."""
Versioned = Source | tuple[Source, int]
"""A pipeline, or one with the number of its version."""
MAX_NAMES = 20


def catalog_of(pipelines: Sequence[Versioned], types: Iterable[NodeType]) -> PlayedCatalog:
    """Return the plans of pipelines; raise InvalidPipeline, or NotPlayable if a file is missing or a
    version is given twice."""
    known = NodeTypes()
    for one in types:
        known.types.described(one.described("play"), START_S * 1000)
    numbered = [one if isinstance(one, tuple) else (one, None) for one in pipelines]
    return PlayedCatalog(
        (checked(compile_pipeline(_document(source)), known)[0], version)
        for source, version in numbered
    )


def check_node(plans: Collection[Plan], name: str) -> None:
    """Raise UnknownStep or NoAttempts if workers get no steps of such a node or type."""
    nodes = _all_nodes(plans)
    if not any(name == node.node.type and runs_in_worker(name) for node in nodes):
        check_step(plans, name)


def check_step(plans: Collection[Plan], step: str) -> None:
    """Raise UnknownStep if no plan can have such a step, and NoAttempts if no worker gets it."""
    path = ITEM_OR_ROUND.sub("", step)
    nodes = _all_nodes(plans)
    called = {one.path for node in nodes for one in node.calls.values()}
    found = [one for one in nodes if path == one.path or re.fullmatch(_keys_of(one, called), path)]
    if any(runs_in_worker(node.node.type) for node in found):
        return
    if found:
        raise NoAttempts(step=step, type=found[0].node.type, cure=_cure(found[0], nodes))
    if not any(emits(one) and re.match(f"{_keys_of(one, called)}/", path) for one in nodes):
        raise UnknownStep(step=step, known=_listed(node.path for node in nodes))


def deadline_of(plan: Plan, deadline_ms: float | None) -> float:
    """Return how long a run may take: this long, or the pipeline's SLO. Raises InvalidInput."""
    if deadline_ms is None:
        return plan.pipeline.slo_ms
    is_number = isinstance(deadline_ms, Real) and not isinstance(deadline_ms, bool)
    if not is_number or not 0 < deadline_ms <= MAX_WAIT_MS:
        raise InvalidInput(
            field="deadline_ms",
            reason=f"it is {deadline_ms!r}",
            cure=f"Give milliseconds above 0, at most {MAX_WAIT_MS}; None means `slo_ms`.",
        )
    return deadline_ms


def check_signal(plans: Collection[Plan], name: str) -> None:
    """Raise UnknownSignal if nothing can wait for such a signal. Handlers may wait for any."""
    nodes, awaited = _all_nodes(plans), [awaited_by(plan) for plan in plans]
    by_path = {node.path for node in nodes if isinstance(node.node, ApprovalNode | SignalNode)}
    if name not in by_path and not any(one.has(name) for one in awaited):
        told = {known for one in awaited for known in one.names or () if one.has(known)}
        known = in_order(by_path | told)
        raise UnknownSignal(signal=name, known=_listed(known) or "none")


def _document(source: Source) -> Any:
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    if not path.is_file():
        raise NotPlayable(
            step=str(path), reason="there is no such file", cure="Name a pipeline's file."
        )
    return parse_document(path.read_bytes())


def _all_nodes(plans: Collection[Plan]) -> list[NodePlan]:
    return [node for plan in plans for node in plan.by_path.values()]


def _keys_of(node: NodePlan, called: Collection[str]) -> str:
    """Return a pattern of the keys of a node's steps, without items and rounds. Each step that a handler
    called has a number (`greet/lookup-1`)."""
    path = node.path
    return re.sub(
        r"[^/~!]+",
        lambda part: part[0] + (r"-\d+" if path[: part.end()] in called else ""),
        path,
    )


def _cure(node: NodePlan, nodes: Sequence[NodePlan]) -> str:
    spec = node.node
    if isinstance(spec, ApprovalNode):
        return f'Answer it: `play.approves("{node.path}")` or `play.refuses("{node.path}")`.'
    if isinstance(spec, SignalNode):
        return f'Send its signal: `play.signals("{spec.signal}", ...)`.'
    if isinstance(spec, PipelineNode):
        return f"Name a step of the pipeline `{spec.pipeline}`, which has to be in the play."
    inside = (f"{node.path}/", f"{node.path}~")
    steps = [one for one in nodes if one.path.startswith(inside) and runs_in_worker(one.node.type)]
    example = f", such as `{steps[0].path}`" if steps else ""
    return f"Name a step inside it{example}."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(islice(names, MAX_NAMES))
