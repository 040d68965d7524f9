"""Checks pipelines against the node types that they name. Node configs are validated, and defaults that
nodes leave out are written into the applied version: a type's `timeout_ms` and `effects`, and the
`queue` of a handler's package."""

from collections.abc import Iterator, Mapping
from typing import Any

from hocket.admin.node_types.registry import NodeTypes
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.contradictions import all_nodes, warnings_of
from hocket.schemas.pipeline.faults import meant_type
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from hocket.schemas.pipeline.spec import OwnNode, Pipeline, pool_of, runs_in_worker

MAX_WARNINGS = 20


def checked(plan: Plan, types: NodeTypes) -> tuple[Plan, list[str]]:
    """Return the plan with the defaults of its types, and warnings about types that no worker runs or
    that are not known as a whole, and about what is seldom meant (`warnings_of`); raise InvalidInput for
    a config that its type does not accept."""
    plan = _completed(plan, types)
    nodes = list(all_nodes(plan.pipeline.nodes, "nodes"))
    for _, node, field in nodes:
        if isinstance(node, OwnNode):
            known = types.types.current(node.type)
            if known is not None and known.config is not None:
                cure = f"`hocket types {node.type}` shows what its config may be."
                known.config.check(dict(node.config), f"{field}.config", cure)
    pools = {pool_of(node): node for _, node, _ in nodes if runs_in_worker(node.type)}
    unserved = [
        node
        for pool, node in sorted(pools.items())
        if (isinstance(node, OwnNode) or node.queue) and not types.has_workers(pool)
    ]
    warnings = [_unserved(node.type, node.queue, types) for node in unserved]
    own = sorted({node.type for _, node, _ in nodes if isinstance(node, OwnNode)})
    warnings += filter(None, (_unknown(node_type, types) for node_type in own))
    warnings += warnings_of(plan.pipeline)
    return plan, warnings[:MAX_WARNINGS]


def _unknown(node_type: str, types: NodeTypes) -> str | None:
    """Return a warning if the description of a type, or a part of it, is missing."""
    known = types.types.current(node_type)
    if known is not None:
        faults = " ".join(known.described.faults)
        return f"Workers describe `{node_type}` with faults. {faults}" if faults else None
    if not types.is_settled or not any(True for _ in types.types.workers_of(node_type)):
        return None
    return (
        f"A worker runs `{node_type}`, but has not described it, or its description was refused (the"
        " log of the API says why: `description_not_believed`). So its config was not checked, and"
        " its `timeout_ms` and `effects` are not those of the type. Set them in the node, or apply the"
        f" pipeline again once `hocket types {node_type}` shows them."
    )


def _unserved(node_type: str, queue: str | None, types: NodeTypes) -> str:
    served = f"`{node_type}` in the queue `{queue}`" if queue else f"`{node_type}`"
    if "." in node_type and types.types.current(node_type) is None:
        return (
            f"No worker has ever announced `{node_type}`, so its config was not checked; runs wait"
            f" until a worker runs {served}. {meant_type(node_type, types.types.names())}"
        ).rstrip()
    return f"No worker runs {served} now; runs wait until one does."


def _completed(plan: Plan, types: NodeTypes) -> Plan:
    """Return the plan with timeouts and effects of its types, and queues of its handlers' packages, for
    nodes that specify none."""
    document = plan.pipeline.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if not _complete(document, types, ("timeout_ms", "effects")):
        return plan
    try:
        return compile_pipeline(Pipeline.model_validate(document))
    except InvalidInput:  # a timeout that does not fit the node's surroundings is left out
        document = plan.pipeline.model_dump(mode="json", by_alias=True, exclude_unset=True)
        _complete(document, types, ("effects",))
        return compile_pipeline(Pipeline.model_validate(document))


def _complete(document: Mapping[str, Any], types: NodeTypes, names: tuple[str, ...]) -> bool:
    changed = False
    for node in _nodes(document):
        queue = types.queues.of(node["handler"]) if node["type"] == "python" else None
        if queue is not None and "queue" not in node:
            node["queue"] = queue
            changed = True
        known = types.types.current(node["type"]) if "." in node["type"] else None
        if known is None:
            continue
        for name in names:
            value = getattr(known.described, name)
            if name not in node and value not in (None, "none"):
                node[name] = value
                changed = True
    return changed


def _nodes(holder: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ("nodes", "branches", "calls"):
        for node in (holder.get(name) or {}).values():
            yield from _with_inner(node)
    for tool in (holder.get("tools") or {}).values():
        yield from _with_inner(tool["node"])


def _with_inner(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    yield from _nodes(node)
    for fallback in node.get("fallback") or ():
        yield from _with_inner(fallback["node"])
    if node.get("fast") is not None:
        yield from _with_inner(node["fast"])
