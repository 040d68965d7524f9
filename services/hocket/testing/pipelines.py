"""Reads the pipelines of a play, and checks them against the node types of its workers."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from hocket.schemas.pipeline.plan import NodePlan, Plan, check_input, compile_pipeline
from hocket.schemas.pipeline.spec import (
    ApprovalNode,
    CallingNode,
    PipelineNode,
    SignalNode,
    runs_in_worker,
)
from hocket.testing.errors import NoAttempts, NotPlayable, UnknownSignal, UnknownStep
from hocket.testing.stand_ins.catalog import PlayedCatalog
from hocket.testing.stand_ins.clock import START_S
from hocket.testing.stand_ins.door import document_taken, value_taken
from hocket.worker.node_type import NodeType

Source = Mapping[str, Any] | str | Path
"""A pipeline: its fields, or its file."""
Versioned = Source | tuple[Source, int]
"""A pipeline, or one with the number of its version."""
MAX_NAMES = 20
_END_OF_NODE = re.compile(r"(?=[/~!])|\Z")
_NUMBER = "(0|[1-9][0-9]{0,9})"
_OTHER = "?"


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a node's steps: `key` has `{}` in the place of each of the `numbers`."""

    node: NodePlan
    key: str
    numbers: tuple[range, ...]

    @property
    def path(self) -> str:
        """The path of the node, which stands for all its steps."""
        return self.node.path

    def __str__(self) -> str:
        if not self.numbers:
            return self.path
        first, last = (self.key.format(*(one[at] for one in self.numbers)) for at in (0, -1))
        return f"{self.path} ({first} ... {last})"

    def has(self, name: str) -> bool:
        """Tell whether a name is the key of one of the steps, or the path."""
        return name == self.path or not self._below(name)

    def is_above(self, name: str) -> bool:
        """Tell whether one of the steps may start a step with this name, which is known only then."""
        is_below = name.startswith(f"{self.path}/") or self._below(name).startswith("/")
        return is_below and emits(self.node)

    def has_all(self, name: str) -> bool:
        """Tell whether a name has no numbers, and so stands for all steps of a node."""
        is_below = self.is_above(name) and not ITEM_OR_ROUND.search(name)
        return name == self.path or is_below

    def _below(self, name: str) -> str:
        """Return what follows the key of a step in a name; _OTHER if it does not begin with one."""
        if not name.startswith(self.key.partition("{")[0]):
            return _OTHER
        found = re.match(re.escape(self.key).replace(r"\{\}", _NUMBER), name)
        if found is None or not all(map(_is_in, found.groups(), self.numbers)):
            return _OTHER
        return name[found.end() :]


def _is_in(number: str, numbers: range) -> bool:
    return int(number) in numbers


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
    """Raise UnknownStep or NoAttempts if workers get no steps of such a node or type, and NotPlayable
    for the key of a step."""
    nodes = _all_nodes(plans)
    if any(name == node.node.type and runs_in_worker(name) for node in nodes):
        return
    check_step(plans, name)
    keys = [keys for keys in _all_keys(plans) if keys.has(name) or keys.is_above(name)]
    if not any(one.has_all(name) for one in keys):
        path = next((one.path for one in keys if one.has(name)), ITEM_OR_ROUND.sub("", name))
        raise NotPlayable(
            step=name,
            reason="it is the key of one step, and a stand-in runs all steps of a node",
            cure=f"Name the node by its path: `{path}`.",
        )


def check_step(plans: Collection[Plan], step: str) -> None:
    """Raise UnknownStep if no plan can have such a step, and NoAttempts if no worker gets it."""
    keys = list(_all_keys(plans))
    found = [one.node for one in keys if one.has(step)]
    if any(runs_in_worker(node.node.type) for node in found):
        return
    if found:
        raise NoAttempts(
            step=step, type=found[0].node.type, cure=_cure(found[0], _all_nodes(plans))
        )
    if not any(one.is_above(step) for one in keys):
        raise UnknownStep(step=step, known=_listed(map(str, keys)))


def input_of(plan: Plan, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the input of a run as the platform gets it; raise InvalidInput if the platform or the
    pipeline's schema refuses it."""
    value = value_taken("input", {} if given is None else given)
    check_input(plan, value)
    made: dict[str, Any] = value
    return made


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
        return document_taken(source)
    path = Path(source)
    if not path.is_file():
        raise NotPlayable(
            step=str(path), reason="there is no such file", cure="Name a pipeline's file."
        )
    return parse_document(path.read_bytes())


def _all_nodes(plans: Collection[Plan]) -> list[NodePlan]:
    return [node for plan in plans for node in plan.by_path.values()]


def _all_keys(plans: Collection[Plan]) -> Iterator[_Keys]:
    for plan in plans:
        called = {one.path for node in plan.by_path.values() for one in node.calls.values()}
        for node in plan.by_path.values():
            yield _keys_of(node, plan.by_path, called)


def _keys_of(node: NodePlan, by_path: Mapping[str, NodePlan], called: Collection[str]) -> _Keys:
    """Return the keys of a node's steps. Each step that a handler called has a number
    (`greet/lookup-1`); a fallback stands beside the items and rounds of its node."""
    key, numbers, begin = "", list[range](), 0
    for end in (found.start() for found in _END_OF_NODE.finditer(node.path)):
        path = node.path[:end]
        key, begin = key + node.path[begin:end], end
        if path in called:
            caller = by_path[path.rpartition("/")[0]].node
            assert isinstance(caller, CallingNode), path
            key, numbers = f"{key}-{{}}", [*numbers, range(1, caller.max_calls + 1)]
        spec = by_path[path].node
        if spec.map and node.path[end : end + 1] != "!":
            key, numbers = f"{key}[{{}}]", [*numbers, range(spec.map.max_items)]
        if spec.loop and node.path[end : end + 1] != "!":
            key, numbers = f"{key}#{{}}", [*numbers, range(1, spec.loop.max_rounds + 1)]
    return _Keys(node, key, tuple(numbers))


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
