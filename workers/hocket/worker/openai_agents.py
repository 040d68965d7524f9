"""Agents of OpenAI's Agents SDK inside a handler: their models are asked by the platform, and neither
model nor tool is called twice, whatever becomes of the attempt. Needs the package `openai-agents`."""

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

from hocket.workers.runtime.execution.context import Context


async def run(agent: Agent[Any], given: Any, context: Context, **options: Any) -> RunResult:
    """Run an agent as `Runner.run` does, with these options, within the attempt of a handler.

    `model` of an agent is a model's name in the routing configuration. The answers of models, and what
    its function tools give, are in the step's journal: another attempt goes on behind them. What is
    traced of it, the platform does."""
    options.setdefault("run_config", RunConfig(tracing_disabled=True))
    return await Runner.run(durable(agent, context), given, **options)


def durable(agent: Agent[Any], context: Context) -> Agent[Any]:
    """Return an agent, with those that it hands over to, whose models and tools are called once."""
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
    """Return a tool each call of which is in the journal. Those of one answer run side by side: the id
    that the model gave each is its branch."""
    invoke = tool.on_invoke_tool

    async def invoked(called: ToolContext[Any], arguments: str) -> Any:
        with context.branch(called.tool_call_id.replace("/", "_").replace("#", "_")):
            return await context.step(tool.name, invoke, called, arguments, returns=Any)

    return replace(tool, on_invoke_tool=invoked)
