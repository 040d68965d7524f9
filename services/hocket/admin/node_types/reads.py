"""Reads node types for the API."""

from collections.abc import Collection
from datetime import UTC, datetime

from hocket.admin.node_types.kept import KnownType
from hocket.admin.node_types.registry import NodeTypes
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.pipeline.spec import WORKER_TYPES
from hocket.schemas.rest import (
    NodeTypeDetail,
    NodeTypeList,
    NodeTypeSummary,
    NodeTypeVersion,
    QueueSlots,
)
from hocket.schemas.subjects import DEFAULT_QUEUE

BUILT_IN = {
    "agent": "Asks a model that may call tools, until it answers.",
    "http": "Sends one request to an HTTP service.",
    "llm": "Calls a model through the gateway.",
    "mcp": "Calls a tool of an MCP server.",
    "nats": "Sends one request to a service over NATS.",
    "planning": "Splits a question into parts, or plans the steps that answer it.",
    "python": "Runs an async function of yours.",
    "retrieval": "Searches an indexed collection.",
    "sql": "Runs one read-only SELECT.",
}
"""What the built-in node types do."""


class NodeTypeUnknown(HocketError):
    """There is no node type `{type}`: it is not built in, and no worker has announced it. Start a
    worker that runs it; `hocket types` lists the existing ones."""

    code = "node_type_unknown"
    error_class = ErrorClass.INVALID


def list_types(types: NodeTypes, after: str, limit: int) -> NodeTypeList:
    """Return a page of node types by name, built-in ones included."""
    names = sorted(name for name in {*WORKER_TYPES, *types.types.names()} if name > after)
    page = names[:limit]
    summaries = tuple(NodeTypeSummary(**_summary(types, name)) for name in page)
    return NodeTypeList(types=summaries, next=page[-1] if len(names) > limit else None)


def show_type(types: NodeTypes, name: str) -> NodeTypeDetail:
    """Return a node type with its versions, or raise NodeTypeUnknown."""
    versions = types.types.versions(name)
    if name not in WORKER_TYPES and not versions:
        raise NodeTypeUnknown(type=name)
    running = [version for _, version, _, _ in types.types.workers_of(name)]
    shown = tuple(_version(known, running) for known in versions)
    return NodeTypeDetail(**_summary(types, name), versions=shown)


def _summary(types: NodeTypes, name: str) -> dict[str, object]:
    known = types.types.current(name)
    queues: dict[str, tuple[set[str], int]] = {}
    for worker, _, slots, pool in types.types.workers_of(name):
        queue = pool.partition("@")[2] or DEFAULT_QUEUE
        workers, before = queues.setdefault(queue, (set(), 0))
        workers.add(worker)
        queues[queue] = workers, before + slots
    return {
        "type": name,
        "built_in": name in WORKER_TYPES,
        "version": known.described.version if known else None,
        "description": (known.described.description if known else "") or BUILT_IN.get(name, ""),
        "is_served": bool(queues),
        "queues": tuple(
            QueueSlots(queue=queue, workers=len(workers), slots=slots)
            for queue, (workers, slots) in sorted(queues.items())
        ),
        "last_seen_at": _moment(known.last_seen_ms) if known else None,
    }


def _version(known: KnownType, running: Collection[str | None]) -> NodeTypeVersion:
    described = known.described
    return NodeTypeVersion(
        **described.model_dump(exclude={"worker", "type"}),
        workers=sum(version == described.version for version in running),
        first_seen_at=_moment(known.first_seen_ms),
        last_seen_at=_moment(known.last_seen_ms),
    )


def _moment(at_ms: float) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
