"""The `agent` node: one round. The model is asked, with its tools' results from the previous round; the
tools it calls now become steps below this one, which the coordinator makes from the pipeline's own
nodes.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import CallReply, ChatMessage
from hocket.schemas.openai.answers import finish_reason
from hocket.schemas.pipeline.agents.turns import PREVIOUS
from hocket.workers.agents.calls import Calls
from hocket.workers.agents.conversation import for_last, result_of, so_far
from hocket.workers.agents.errors import AgentUnfinished
from hocket.workers.agents.limits import Last, last_round, longest_ms, max_tokens
from hocket.workers.agents.state import Rounds
from hocket.workers.errors import ModelReplyCut, ModelReplyInvalid
from hocket.workers.nodes.planning import question_of
from hocket.workers.nodes.prompts.structured import CUT_OFF, read_data
from hocket.workers.nodes.prompts.templates import render
from hocket.workers.runtime.execution.context import Context, shown


class DescribesTools(Protocol):
    """Knows how the tools of MCP servers describe themselves."""

    async def described(
        self, server: str, tool: str, tenant: str, *, timeout_ms: float
    ) -> Mapping[str, Any]:
        """Return a tool's `description` and `parameters`."""
        ...


class AgentNode:
    """Asks an agent's model; `servers` describe those of their tools that the pipeline does not."""

    def __init__(self, servers: DescribesTools) -> None:
        self._servers = servers

    async def __call__(self, context: Context) -> dict[str, Any]:
        """Return the result of the round: `{done: true, text, data?, finish_reason, rounds,
        tool_calls, usage, model, backend}`; or, if the model calls tools, the conversation so far and
        these calls."""
        config, began_at_ms = context.config, now_ms()
        given, before = _read(context.input)
        system = config.get("system")
        system = render(system, given, "system") if system else None
        task = question_of(config.get("prompt"), given)
        step = context.step
        ends_at_ms = step.run_deadline_at_ms or step.deadline_at_ms
        last = last_round(
            config,
            before,
            now_ms=began_at_ms,
            deadline_at_ms=step.deadline_at_ms,
            run_ends_at_ms=ends_at_ms,
        )
        tools = await self._described(context)
        messages = so_far(before, task, await _results(context, before))
        limit, bound = max_tokens(config, before)
        reply = await context.model(
            config["model"],
            system=system,
            messages=for_last(messages, last),
            tools=[_function(name, tool) for name, tool in tools.items()],
            tool_choice=None if last is None else "none",
            task="agent",
            max_tokens=limit,
            temperature=config.get("temperature"),
            response_schema=config.get("response_schema"),
            requires=config.get("requires"),
        )
        is_cut = reply.finish_reason == CUT_OFF
        calls = Calls(before.rounds + 1, tools, config["max_calls"], is_cut=is_cut)
        calls.read(reply.tool_calls)
        if last is not None and calls.told:
            raise AgentUnfinished(why=last.why, bound=last.bound)
        after = before.model_copy(
            update={
                "rounds": before.rounds + 1,
                "tool_calls": before.tool_calls + len(calls.made),
                "usage": before.usage.with_call(reply),
                "most_tokens": max(before.most_tokens, reply.input_tokens + reply.output_tokens),
                "most_usd": max(before.most_usd, reply.cost_usd),
                "longest_ms": longest_ms(before, began_at_ms, ends_at_ms),
                "began_at_ms": began_at_ms,
                "run_ends_at_ms": ends_at_ms,
                "calls": tuple(calls.made),
                "refused": tuple(calls.refused),
                "results": {},
            }
        )
        said = ChatMessage(role="assistant", content=reply.text, tool_calls=tuple(calls.told))
        after = after.model_copy(update={"messages": (*messages, said)})
        if calls.told:
            return after.model_dump(mode="json")
        return await _answered(config, after, reply, last, bound)

    async def _described(self, context: Context) -> dict[str, dict[str, Any]]:
        """Return the tools by name; servers describe those of theirs that the pipeline does not."""
        found: dict[str, dict[str, Any]] = {}
        for name, tool in context.config["tools"].items():
            found[name] = dict(tool)
            if "parameters" not in tool:
                said = await self._servers.described(
                    tool["server"],
                    tool["tool"],
                    context.tenant,
                    timeout_ms=max(context.deadline_at_ms - now_ms(), 1.0),
                )
                found[name]["parameters"] = said["parameters"]
                found[name]["description"] = tool["description"] or said["description"]
        return found


def _read(step_input: Any) -> tuple[Any, Rounds]:
    """Return the input of an agent, and its rounds so far."""
    if not isinstance(step_input, Mapping):
        return step_input, Rounds()
    previous = step_input.get(PREVIOUS)
    given = {name: value for name, value in step_input.items() if name != PREVIOUS}
    if previous is None:
        return given, Rounds()
    try:
        return given, Rounds.model_validate(previous)
    except ValidationError:
        raise InvalidInput(
            field=f"input.{PREVIOUS}",
            reason="it is not the outcome of a round",
            cure="Run workers and coordinators of the same release.",
        ) from None


async def _results(context: Context, before: Rounds) -> dict[str, str]:
    """Return what the model is told of the calls of the previous round, by their ids. Each result is
    loaded on its own, because all of them together may be too large."""
    told: dict[str, str] = {}
    for call in before.calls:
        async with shown(context, before.results.get(call.step)) as result:
            told[call.id] = result_of(call, result, context.config)
    return told


def _function(name: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "parameters": tool["parameters"]}
    if tool["description"]:
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


async def _answered(
    config: Mapping[str, Any], after: Rounds, reply: CallReply, last: Last | None, bound: str
) -> dict[str, Any]:
    """Return the output of an agent that has answered. If the answer does not fit its schema, return the
    round that tells the model so, or raise ModelReplyInvalid if this was the last round, or if the
    answer was cut off, as the next one would be (`bound` is what to raise)."""
    answer: dict[str, Any] = {
        "done": True,
        "text": reply.text,
        "finish_reason": finish_reason(reply),
    }
    schema = config.get("response_schema")
    if schema is not None:
        try:
            answer["data"] = await read_data(reply, schema, bound)
        except ModelReplyCut:
            raise
        except ModelReplyInvalid as error:
            if last is not None:
                raise
            wrong = f"Your answer does not fit: {error.fields['reason']}. Answer again."
            told = (*after.messages, ChatMessage(role="user", content=wrong))
            return after.model_copy(update={"messages": told}).model_dump(mode="json")
    counts = {"rounds": after.rounds, "tool_calls": after.tool_calls}
    usage = after.usage.model_dump(mode="json")
    return answer | counts | {"model": reply.model, "backend": reply.backend, "usage": usage}
