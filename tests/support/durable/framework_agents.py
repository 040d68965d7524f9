"""Agents of frameworks that call a model six times, with a tool call in between. Each tool call makes
one request to the outside world that is not in the journal."""

from typing import Any

import pydantic_ai
from agents import Agent, function_tool

from hocket.worker import openai_agents
from hocket.worker.pydantic_ai import Durability, durable
from hocket.workers.runtime.execution.context import Context

TOOL_CALLS = 5
"""Number of tool calls, after which the model gives its answer."""
ENTRIES = 2 * TOOL_CALLS + 1
"""Number of entries in the journal: an answer of the model, a tool, and so on, and the last answer."""


async def agents_sdk(context: Context, _die: str = "") -> str:
    """Run an agent of OpenAI's Agents SDK."""

    @function_tool
    async def note(text: str) -> str:
        """Note a text."""
        return await _world(context, text)

    noter = Agent(name="noter", instructions="Note it.", model="clerk", tools=[note])
    result = await openai_agents.run(noter, "begin", context)
    return str(result.final_output)


async def pydantic_agent(context: Context, _die: str = "") -> str:
    """Run an agent of pydantic-ai."""

    async def note(text: str) -> str:
        """Note a text."""
        return await _world(context, text)

    options: dict[str, Any] = {"name": "noter", "tools": [note], "capabilities": [Durability()]}
    noter = pydantic_ai.Agent("clerk", instructions="Note it.", **options)
    with durable(context):
        return str((await noter.run("begin")).output)


async def _world(context: Context, text: str) -> str:
    return (await context.model("world", text, journal=False)).text
