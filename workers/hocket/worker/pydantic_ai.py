"""pydantic-ai agents inside a handler.

The platform makes their model calls, and neither model nor tool calls are repeated by another attempt.
Needs the package `pydantic-ai-slim[openai]`."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.models import Model, ModelResolutionContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from hocket.worker.tool_calls import branch_of
from hocket.workers.runtime.execution.context import Context

_HANDLER: ContextVar[Context | None] = ContextVar("hocket_pydantic_ai_handler", default=None)


@contextmanager
def durable(context: Context) -> Iterator[None]:
    """Make every agent run in the block, however it is started, part of this attempt.

    Each agent needs `Durability` among its `capabilities`."""
    token = _HANDLER.set(context)
    try:
        yield
    finally:
        _HANDLER.reset(token)


class Durability(BaseDurabilityCapability[Any]):
    """A capability that makes an agent's runs inside a handler (`with durable(context)`) durable.

    Runs outside a handler are unchanged. The agent's `model` is a name in the routing configuration.
    Model answers and tool results are kept in the step's journal, and another attempt continues after
    them."""

    engine_spec = DurabilityEngineSpec(
        engine_name="Hocket",
        durable_unit_noun="step",
        durable_container_noun="handler",
        codec=JSON_CODEC,
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )

    def __init__(self) -> None:
        super().__init__()
        self._routed: set[str] = set()

    @property
    def in_durable_context(self) -> bool:
        """Whether this run is inside a handler."""
        return _HANDLER.get() is not None

    async def resolve_model_id(
        self,
        ctx: ModelResolutionContext[Any],  # noqa: ARG002 - of the protocol
        *,
        model_id: str,
    ) -> Model | None:
        """Return the platform's model of that name, or None outside a handler."""
        context = _HANDLER.get()
        if context is None:
            return None
        self._routed.add(model_id)
        provider = OpenAIProvider(openai_client=context.openai_client())
        return OpenAIChatModel(model_id, provider=provider)

    def get_default_run_id(self) -> str | None:
        """Return the agent run's id, which is the same in all attempts; None outside a handler."""
        context = _HANDLER.get()
        if context is None:
            return None
        return f"{context.step.run_id}/{context.step.step}/{context.random()}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return the conversation's id, which is the same in all attempts; None outside a handler."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_durable_operation_backend(self) -> "StepJournal":
        """Return the backend that keeps the agent's operations in the step's journal."""
        return StepJournal(self.name, self._routed)


class StepJournal(JournalCallableOperationBackend[None]):
    """Runs each operation of an agent once. `routed` names the models that the platform calls, whose
    answers the platform's client already journals."""

    def __init__(self, agent_name: str, routed: set[str]) -> None:
        config = RoleBasedOperationConfig[None](model=None, event=None, capability=None, tool=None)
        super().__init__(agent_name=agent_name, config=config)
        self._routed = routed

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,  # noqa: ARG002 - of the protocol
    ) -> object:
        """Return an operation's result as JSON, from the journal if an earlier attempt already ran it.

        The tool calls of one answer run concurrently, so each has a branch named after its id."""
        context = _HANDLER.get()
        assert context is not None, "outside of handlers nothing is dispatched"
        if isinstance(operation_id, ModelRequestId):
            if operation_id.model_id in self._routed:
                return await body()
            return await context.step(name, body, returns=Any)
        called = next((part for part in cache_key if isinstance(part, RunContext)), None)
        branch = name
        if called is not None and called.tool_call_id:
            branch = called.tool_call_id
            if isinstance(operation_id, ToolsetCallToolId):
                name = called.tool_name or name
        with context.branch(branch_of(branch)):
            return await context.step(name, body, returns=Any)
