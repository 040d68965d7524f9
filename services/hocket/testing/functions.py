"""Finds the function that plays the steps of a node: a stand-in, the worker's own, or a built-in one."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any
from unittest.mock import NonCallableMock

from hocket.schemas.pipeline.handlers import AllowedHandlers
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.subjects import is_own_type
from hocket.testing.errors import NotPlayable
from hocket.testing.stand_ins.clock import NoThreads
from hocket.worker.node_type import NodeType
from hocket.workers.errors import HandlerUnknown
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import Function, described, run_function
from hocket.workers.runtime.execution.runner import Handler

CALLED_AS = (
    "It is called as `f()`, `f(input)` or `f(input, context)`, and may have a parameter `config`."
)
StandIn = Function
"""A stand-in, and how it is called."""
_ANY = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}


class Functions:
    """The functions of a play. `stand_ins` are keyed by a node's path or a type's name."""

    def __init__(self, stand_ins: Mapping[str, StandIn], types: Iterable[NodeType]) -> None:
        self._threads = NoThreads()
        self._made: dict[str, Handler] = {
            name: self._called(function) for name, function in stand_ins.items()
        }
        self._types = {one.name: one.handler(self._threads) for one in types}

    def of(self, step: RequestedStep) -> Handler:
        """Return the function that plays a step, or raise NotPlayable."""
        for name in (step.node, step.type):
            if name in self._made:
                return self._made[name]
        if step.type in self._types:
            return self._types[step.type]
        handler = self._built_in(step)
        if step.type != "python":
            self._made[step.type] = handler
        return handler

    def _called(self, function: StandIn) -> Handler:
        async def run(context: Context) -> Any:
            return await run_function(function, context, self._threads)

        return run

    def _built_in(self, step: RequestedStep) -> Handler:
        if step.type == "python":
            from hocket.workers.nodes.python import PythonNode

            named = str(step.config.get("handler"))
            module = named.partition(":")[0]
            entries = () if module.partition(".")[0] == "hocket" else (module,)
            return PythonNode(self._threads, AllowedHandlers.of(entries, "handler"))
        if step.type == "llm":
            from hocket.workers.nodes.llm import run_llm

            return run_llm
        if step.type == "agent":
            from hocket.workers.agents.node import AgentNode

            return AgentNode(_NoServers())
        if step.type == "planning" and not _reads_databases(step):
            from hocket.workers.nodes.planning import PlanningNode

            return PlanningNode(_NoValues())
        reason = f"nothing here runs steps of the type `{step.type}`"
        cure = f"Give it a stand-in: `play.node({step.node!r}, function)`"
        if is_own_type(step.type):
            cure += ", or the worker that has it: `Play(..., worker=...)`"
        raise NotPlayable(step=step.step, reason=reason, cure=f"{cure}.")


def stand_in(name: str, function: Callable[..., Any]) -> StandIn:
    """Return how a stand-in for a node is called. Raises NotPlayable if it cannot be called."""
    call = _with_input(function) if _takes_anything(function) else function
    try:
        return described(name, call, with_config=True)
    except HandlerUnknown as error:
        raise NotPlayable(
            step=name, reason=f"its stand-in does not fit: {error.fields['reason']}", cure=CALLED_AS
        ) from None


def _takes_anything(function: Callable[..., Any]) -> bool:
    """Tell whether a function is a mock, or has no parameters but `*args` and `**kwargs`: its parameters
    do not say what it wants."""
    if isinstance(function, NonCallableMock):
        return callable(function)
    try:
        kinds = {one.kind for one in inspect.signature(function).parameters.values()}
    except (TypeError, ValueError):  # it is not callable, or a builtin that names none
        return False
    return Parameter.VAR_POSITIONAL in kinds and kinds <= _ANY


def _with_input(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(given: Any) -> Any:
        return function(given)

    return call


def _reads_databases(step: RequestedStep) -> bool:
    queries = step.config.get("catalog") or ()
    return any(query.get("values") or query.get("params") for query in queries)


class _NoValues:
    """Values of catalog parameters, of which a play has none: they are in databases."""

    async def load(
        self,
        tenant: str,  # noqa: ARG002 - of the protocol
        database: str,  # noqa: ARG002
        sql: str,  # noqa: ARG002
        *,
        timeout_ms: float,  # noqa: ARG002
    ) -> list[Any]:
        """Return no values."""
        return []


class _NoServers:
    """Tools of MCP servers, which no play has."""

    async def described(
        self,
        server: str,
        tool: str,
        tenant: str,  # noqa: ARG002 - of the protocol
        *,
        timeout_ms: float,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Raise NotPlayable: the pipeline itself must describe the tool."""
        raise NotPlayable(
            step=f"(tool {tool})",
            reason=f"the MCP server `{server}` defines its arguments, but a play has no servers",
            cure="Write the tool's `parameters` in the pipeline.",
        )
