"""OpenAI Agents SDK agents inside a handler.

The platform makes their model calls, and neither model nor tool calls are repeated by another attempt.
Needs the package `openai-agents`."""

from dataclasses import replace
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    Model,
    ModelProvider,
    MultiProvider,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunResult,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
)
from agents.tool_context import ToolContext

from hocket.schemas.errors import InvalidInput
from hocket.worker.tool_calls import branch_of
from hocket.workers.errors import OutputNotJson
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.results.encoding import plain
from hocket.workers.runtime.results.forms import KEPT


async def run(agent: Agent[Any], given: Any, context: Context, **options: Any) -> RunResult:
    """Run an agent inside a handler's attempt, as `Runner.run` does, with the same options.

    An agent's `model` is a name in the routing configuration. Model answers and the results of function
    tools are kept in the step's journal, and another attempt continues after them. The SDK's own tracing
    is off unless `run_config` is given, because the platform traces the calls."""
    options["run_config"] = _routed(options.get("run_config"), context)
    return await Runner.run(durable(agent, context), given, **options)


class _Models(ModelProvider):
    """Finds models by their names in the routing configuration, also those of agents that are another
    one's tools, and that of a RunConfig: the SDK's own provider would ask OpenAI's servers."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get_model(self, model_name: str | None) -> Model:
        if not model_name:
            raise InvalidInput(
                field="model",
                reason="an agent has none",
                cure="Name one of the routing configuration: `Agent(model=...)`.",
            )
        return OpenAIChatCompletionsModel(model_name, self._context.openai_client())


def _routed(given: RunConfig | dict[str, Any] | None, context: Context) -> RunConfig:
    """Return the configuration of a run whose models the platform calls, unless it has a provider of its
    own."""
    if given is None:
        return RunConfig(tracing_disabled=True, model_provider=_Models(context))
    config = RunConfig(**given) if isinstance(given, dict) else given
    is_own = not isinstance(config.model_provider, MultiProvider)
    return config if is_own else replace(config, model_provider=_Models(context))


def durable(agent: Agent[Any], context: Context) -> Agent[Any]:
    """Return a copy of an agent, and of those it hands over to, that repeats no model or tool call."""
    return _durable(agent, context, {})


Made = dict[int, tuple[Agent[Any], Agent[Any]]]
"""Agents with their copies. It holds both, so that no other agent gets the same `id`."""


def _durable(agent: Agent[Any], context: Context, made: Made) -> Agent[Any]:
    if id(agent) in made:
        return made[id(agent)][1]
    model: Any = agent.model
    if isinstance(model, str):
        model = OpenAIChatCompletionsModel(model, context.openai_client())
    tools = [
        _once(tool, context) if isinstance(tool, FunctionTool) else tool for tool in agent.tools
    ]
    copy = agent.clone(model=model, tools=tools)
    made[id(agent)] = agent, copy
    copy.handoffs = [
        _durable(other, context, made)
        if isinstance(other, Agent)
        else _handoff(other, context, made)
        for other in agent.handoffs
    ]
    return copy


def _handoff(
    given: Handoff[Any, Agent[Any]], context: Context, made: Made
) -> Handoff[Any, Agent[Any]]:
    """Return a handoff (`handoff(agent, ...)`) to a durable copy of its agent, which only calling it
    tells."""
    invoke = given.on_invoke_handoff

    async def invoked(called: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
        return _durable(await invoke(called, arguments), context, made)

    return replace(given, on_invoke_handoff=invoked)


def _once(tool: FunctionTool, context: Context) -> FunctionTool:
    """Return a tool whose calls are journaled. The calls of one answer run concurrently, so each has a
    branch named after its id."""
    invoke = tool.on_invoke_tool
    has_schema = getattr(tool, "output_json_schema", None) is not None

    async def shown(called: ToolContext[Any], arguments: str) -> Any:
        given = await invoke(called, arguments)
        return given if has_schema else _shown(given)

    async def invoked(called: ToolContext[Any], arguments: str) -> Any:
        with context.branch(branch_of(called.tool_call_id)):
            return await context.step(tool.name, shown, called, arguments, returns=Any)

    return replace(tool, on_invoke_tool=invoked)


def _shown(given: Any) -> Any:
    """Return a tool's result so that the journal's JSON shows the model the same text as the SDK would:
    images, files and JSON as they are, everything else as text."""
    items = given if isinstance(given, list | tuple) else (given,)
    if all(isinstance(one, (dict, *_STRUCTURED)) for one in items) and any(
        isinstance(one, _STRUCTURED) for one in items
    ):
        return given
    try:
        kept = plain(given, "value", KEPT)
    except OutputNotJson:
        return str(given)
    return given if str(kept) == str(given) else str(given)


_STRUCTURED = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
