"""OpenAI Agents SDK agents inside a handler.

The platform makes their model calls, and neither model nor tool calls are repeated by another attempt.
Needs the package `openai-agents`."""

from dataclasses import replace
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    RunResult,
)
from agents.tool_context import ToolContext

from hocket.worker.tool_calls import branch_of
from hocket.workers.runtime.execution.context import Context


async def run(agent: Agent[Any], given: Any, context: Context, **options: Any) -> RunResult:
    """Run an agent inside a handler's attempt, as `Runner.run` does, with the same options.

    An agent's `model` is a name in the routing configuration. Model answers and the results of function
    tools are kept in the step's journal, and another attempt continues after them. The SDK's own tracing
    is off unless `run_config` is given, because the platform traces the calls."""
    options.setdefault("run_config", RunConfig(tracing_disabled=True))
    return await Runner.run(durable(agent, context), given, **options)


def durable(agent: Agent[Any], context: Context) -> Agent[Any]:
    """Return a copy of an agent, and of those it hands over to, that repeats no model or tool call."""
    return _durable(agent, context, {})


def _durable(agent: Agent[Any], context: Context, made: dict[int, Agent[Any]]) -> Agent[Any]:
    if id(agent) in made:
        return made[id(agent)]
    model: Any = agent.model
    if isinstance(model, str):
        model = OpenAIChatCompletionsModel(model, context.openai_client())
    tools = [
        _once(tool, context) if isinstance(tool, FunctionTool) else tool for tool in agent.tools
    ]
    made[id(agent)] = copy = agent.clone(model=model, tools=tools)
    copy.handoffs = [
        _durable(other, context, made) if isinstance(other, Agent) else other
        for other in agent.handoffs
    ]
    return copy


def _once(tool: FunctionTool, context: Context) -> FunctionTool:
    """Return a tool whose calls are journaled. The calls of one answer run concurrently, so each has a
    branch named after its id."""
    invoke = tool.on_invoke_tool

    async def invoked(called: ToolContext[Any], arguments: str) -> Any:
        with context.branch(branch_of(called.tool_call_id)):
            return await context.step(tool.name, invoke, called, arguments, returns=Any)

    return replace(tool, on_invoke_tool=invoked)
