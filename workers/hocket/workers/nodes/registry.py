"""The functions that run the steps of each node type."""

from collections.abc import Callable, Mapping, Sequence

from hocket.schemas.subjects import type_of
from hocket.workers.agents.node import AgentNode
from hocket.workers.nodes.http import HttpNode
from hocket.workers.nodes.llm import run_llm
from hocket.workers.nodes.mcp import McpNode
from hocket.workers.nodes.nats import NatsNode
from hocket.workers.nodes.parameter_values import ParameterValues
from hocket.workers.nodes.planning import PlanningNode
from hocket.workers.nodes.python import PythonNode
from hocket.workers.nodes.resources import Resources
from hocket.workers.nodes.retrieval import RetrievalNode
from hocket.workers.nodes.sql import SqlNode
from hocket.workers.runtime.execution.runner import Handler


def handlers(pools: Sequence[str], resources: Resources) -> dict[str, Handler]:
    """Return the handlers of the given node types, or of queues of them (`python@gpu`)."""
    return {pool: _MAKERS[type_of(pool)](resources) for pool in pools}


def _retrieval(resources: Resources) -> Handler:
    assert resources.index is not None, "retrieval nodes need the pool of the index"
    return RetrievalNode(resources.index)


_MAKERS: Mapping[str, Callable[[Resources], Handler]] = {
    "planning": lambda resources: PlanningNode(ParameterValues(resources.targets)),
    "retrieval": _retrieval,
    "sql": lambda resources: SqlNode(resources.targets),
    "llm": lambda resources: run_llm,
    "agent": lambda resources: AgentNode(resources.mcp_servers),
    "http": lambda resources: HttpNode(resources.services),
    "mcp": lambda resources: McpNode(resources.mcp_servers),
    "nats": lambda resources: NatsNode(resources.nats_services),
    "python": lambda resources: PythonNode(resources.threads, resources.handlers),
}
