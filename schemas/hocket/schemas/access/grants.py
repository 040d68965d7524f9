"""Grants: what the pipelines of a tenant may use. A tenant without grants may use everything.

A grant is a list of names for one kind of resource; a kind without a list is not restricted. Every name
in a pipeline is a constant, so the resources that a step uses are known before it is dispatched. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from hocket.schemas.errors import DocumentInvalid
from hocket.schemas.pipeline.contradictions import all_nodes
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.spec import (
    AgentNode,
    HttpNode,
    LlmNode,
    McpNode,
    NatsNode,
    Node,
    Pipeline,
    PlanningNode,
    SqlNode,
    runs_in_worker,
)

MAX_NAMES = 500
"""The most names of one kind."""
MAX_FAULTS = 20
"""The most missing grants that one error lists."""

GrantName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-~]([ -~]*[!-~])?$")]
Names = tuple[GrantName, ...] | None

KINDS = {
    "node_types": "node type",
    "queues": "queue",
    "models": "model",
    "databases": "database",
    "http_services": "HTTP service",
    "mcp_servers": "MCP tool",
    "nats_services": "NATS service",
}
"""The field of each kind of resource, and its name in errors."""


class Grants(BaseModel):
    """What the pipelines of a tenant may use. `null` allows everything of the kind, `[]` nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    node_types: Names = Field(None, max_length=MAX_NAMES)
    """Node types that workers run: built-in (`llm`, `sql`) and custom (`crm.lookup`). `graph`, `race`,
    `pipeline`, `approval` and `signal` need no grant."""
    queues: Names = Field(None, max_length=MAX_NAMES)
    """Queues that nodes name (`queue`). A node without a queue needs no grant for it."""
    models: Names = Field(None, max_length=MAX_NAMES)
    """Models and aliases, as named in the routing configuration. Includes calls made by handlers."""
    databases: Names = Field(None, max_length=MAX_NAMES)
    """Databases in the configuration's section `databases`."""
    http_services: Names = Field(None, max_length=MAX_NAMES)
    """Services in the configuration's section `http_services`."""
    mcp_servers: Names = Field(None, max_length=MAX_NAMES)
    """MCP servers with all of their tools (`search`), or single tools (`search/find`)."""
    nats_services: Names = Field(None, max_length=MAX_NAMES)
    """Services in the configuration's section `nats_services`."""

    def allows(self, kind: str, name: str) -> bool:
        """Tell whether a resource may be used. `kind` is a field of this model."""
        names: Names = getattr(self, kind)
        if names is None or name in names:
            return True
        return kind == "mcp_servers" and _allows_tool(names, name)


EVERYTHING = Grants()
"""The grants of a tenant for which none were set."""


@dataclass(frozen=True, slots=True)
class Use:
    """A resource that a node uses, and the field that names it."""

    kind: str
    name: str
    field: str


class GrantMissing(DocumentInvalid):
    """`{field}` is not granted: {reason}. {cure}"""

    code = "grant_missing"


def check_grants(pipeline: Pipeline, grants: Grants, tenant: str) -> None:
    """Raise GrantMissing, listing every missing grant, if a pipeline uses resources not granted."""
    if grants == EVERYTHING:
        return
    missing = [
        missing_grant(use, tenant, node=name)
        for name, node, field in all_nodes(pipeline.nodes, "nodes")
        for use in uses_of(node, field)
        if not grants.allows(use.kind, use.name)
    ]
    if missing:
        first, *others = missing[:MAX_FAULTS]
        raise GrantMissing(others=others, **first)


def missing_at_step(node: Node, step: str, grants: Grants, tenant: str) -> GrantMissing | None:
    """Return the error of a step that uses a resource not granted, or None if it may be dispatched."""
    if grants is EVERYTHING:
        return None
    for use in uses_of(node, step):
        if not grants.allows(use.kind, use.name):
            return GrantMissing(**missing_grant(use, tenant, node=step))
    return None


def missing_grant(use: Use, tenant: str, *, node: str) -> dict[str, Any]:
    """Return the field, reason and cure of a missing grant."""
    what = KINDS[use.kind]
    return {
        "field": use.field,
        "reason": f"node `{node}` uses the {what} `{use.name}`, but tenant `{tenant}` has no grant "
        f"for it",
        "cure": f"Ask an operator of the platform to add `{use.name}` to the grant `{use.kind}`, or use"
        " one that `hocket grants show` lists.",
    }


def uses_of(node: Node, field: str) -> Iterator[Use]:
    """Yield the resources that a node itself uses, not those of the nodes inside it."""
    if runs_in_worker(node.type):
        yield Use("node_types", node.type, f"{field}.type")
    if node.queue is not None:
        yield Use("queues", node.queue, f"{field}.queue")
    if isinstance(node, LlmNode | PlanningNode | AgentNode):
        yield Use("models", node.model, f"{field}.model")
    if isinstance(node, SqlNode | PlanningNode) and node.database is not None:
        yield Use("databases", node.database, f"{field}.database")
    if isinstance(node, HttpNode):
        yield Use("http_services", node.service, f"{field}.service")
    if isinstance(node, McpNode):
        yield Use("mcp_servers", f"{node.server}/{node.tool}", f"{field}.tool")
    if isinstance(node, NatsNode):
        yield Use("nats_services", node.service, f"{field}.service")
    if isinstance(node, PlanningNode) and node.emit is not None:
        yield from _policy_uses(node.emit, f"{field}.emit")


def _policy_uses(policy: PlanPolicy, field: str) -> Iterator[Use]:
    """Yield the resources that a planner's emitted steps may use; each step is checked as well."""
    types = [name for name in policy.types if runs_in_worker(name)]
    yield from _named("node_types", types, f"{field}.types")
    yield from _named("models", policy.models, f"{field}.models")
    yield from _named("databases", policy.databases, f"{field}.databases")
    yield from _named("http_services", policy.services, f"{field}.services")
    yield from _named("mcp_servers", policy.mcp_servers, f"{field}.mcp_servers")
    yield from _named("nats_services", policy.nats_services, f"{field}.nats_services")


def _named(kind: str, names: Iterable[str], field: str) -> Iterator[Use]:
    for i, name in enumerate(names):
        yield Use(kind, name, f"{field}.{i}")


def _allows_tool(names: tuple[str, ...], name: str) -> bool:
    """Tell whether a tool (`server/tool`) belongs to a granted server, or whether any tool of a server
    (`server`, in a planner's policy) is granted."""
    if any(name.startswith(f"{granted}/") for granted in names if "/" not in granted):
        return True
    return "/" not in name and any(granted.startswith(f"{name}/") for granted in names)
