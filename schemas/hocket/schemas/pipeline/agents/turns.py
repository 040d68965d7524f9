"""Unfolds an agent: it is a loop whose rounds each call the model once, and the model's tool calls are
steps below the round. Pure.

A worker reports a round as `{done, calls: [{step, tool, arguments}], ...}`. It names tools and never
nodes: what runs is what the pipeline's author wrote, with the arguments as data.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.pipeline.agents.results import fitted
from hocket.schemas.pipeline.emitted import literally
from hocket.schemas.pipeline.node_parts import Loop, Name, ToolName
from hocket.schemas.pipeline.spec import AgentNode, McpNode, Node

PREVIOUS = "previous"
"""The field of a round's input that holds the outcome of the previous round."""
MAX_CALLS = 32
"""The highest allowed `max_calls`."""


class TurnInvalid(HocketError):
    """A worker reported an impossible round of agent `{agent}`: `{field}`: {reason}. Run workers of
    the same release as the platform."""

    code = "agent_turn_invalid"
    error_class = ErrorClass.INVALID


class ToolCall(BaseModel):
    """A call that is carried out: the name of its step, the tool, and the arguments."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    step: Name
    tool: ToolName
    arguments: dict[str, Any]


class Turn(BaseModel):
    """What a worker says of a round, as far as it is unfolded."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    done: bool
    calls: tuple[ToolCall, ...] = Field((), max_length=MAX_CALLS)


def unfolded(node: AgentNode) -> AgentNode:
    """Return an agent in the form of a loop."""
    loop = Loop(until="output.done", max_rounds=node.max_rounds)
    return node.model_copy(update={"loop": loop})


def calls_of(agent: AgentNode, path: str, output: Any) -> tuple[ToolCall, ...]:
    """Return the calls of a round; raise TurnInvalid if the worker's report is impossible."""
    try:
        turn = Turn.model_validate(output)
    except ValidationError as error:
        fault = first_fault(error)
        raise TurnInvalid(agent=path, field=fault.field("output"), reason=fault.reason) from None
    seen: set[str] = set()
    for i, call in enumerate(turn.calls):
        if i >= agent.max_calls:
            reason = f"there are {len(turn.calls)}, but at most {agent.max_calls} are allowed"
            raise TurnInvalid(agent=path, field="calls", reason=reason)
        if call.tool not in agent.tools:
            raise TurnInvalid(agent=path, field=f"calls.{i}.tool", reason="there is no such tool")
        if call.step in seen:
            raise TurnInvalid(
                agent=path, field=f"calls.{i}.step", reason="another call has the same one"
            )
        seen.add(call.step)
    if turn.done and turn.calls:
        raise TurnInvalid(agent=path, field="done", reason="the model called tools")
    return turn.calls


def nodes_of(agent: AgentNode, calls: tuple[ToolCall, ...]) -> dict[str, Node]:
    """Return the nodes that calls unfold into, by step name."""
    return {call.step: _node_of(agent.tools[call.tool].node, call.arguments) for call in calls}


def outcome_of(
    agent: AgentNode, turn: Mapping[str, Any], steps: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the outcome of a round: its worker's report, and the result of each call, cut if they are
    too large together. A tool that succeeded after a failed attempt, or by its fallback, has no error
    for the model."""
    results: dict[str, Mapping[str, Any]] = {
        name: {
            "output": step["output"],
            "error": None if step["state"] == "succeeded" else step["error"],
        }
        for name, step in steps.items()
    }
    is_remote = {name: isinstance(tool.node, McpNode) for name, tool in agent.tools.items()}
    remote = {call["step"] for call in turn["calls"] if is_remote[call["tool"]]}
    return {**turn, "results": fitted(results, agent.max_result_chars, remote)}


def _node_of(node: Node, arguments: dict[str, Any]) -> Node:
    given = literally(arguments)
    update: dict[str, Any] = {"with_": given}
    if isinstance(node, McpNode) and not node.arguments:
        update["arguments"] = given
    return node.model_copy(update=update)
