"""The conversation that an agent's model gets: its task, its own answers, and its tools' results.
Pure."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from hocket.schemas.messages import ChatMessage
from hocket.workers.agents.limits import Last
from hocket.workers.agents.state import MadeCall, Rounds
from hocket.workers.nodes.prompts.structured import has_many_values
from hocket.workers.runtime.results.encoding import makes_more_than

MAX_ERROR_CHARS = 2_000
"""The limit on the text of a tool's error."""
MAX_CONVERSATION_BYTES = 393_216
"""The limit on its JSON, because a round's output contains it and is at most 512 KiB without blobs."""
LEAST_RESULT_CHARS = 500
"""Results are not cut below this length."""
_JSON = json.JSONEncoder(ensure_ascii=False)


def result_of(call: MadeCall, result: Any, config: Mapping[str, Any]) -> str:
    """Return a call's result as the model gets it; `config` is the agent's."""
    is_remote = "server" in config["tools"].get(call.tool, ())
    return _told(result, config["max_result_chars"], is_remote=is_remote)


def so_far(before: Rounds, task: str, results: Mapping[str, str]) -> tuple[ChatMessage, ...]:
    """Return the conversation for the round that begins: the task, or the conversation so far and the
    results of the tools called since, by the ids of their calls."""
    if not before.rounds:
        return (ChatMessage(role="user", content=task),)
    told = {one.id: _refused(one.reason) for one in before.refused} | dict(results)
    answers = [
        ChatMessage(role="tool", content=told[call["id"]], tool_call_id=call["id"])
        for call in (before.messages[-1].tool_calls if before.messages else ())
    ]
    return fitted((*before.messages, *answers))


def fitted(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Return a conversation that fits into a model call: if it is too large, tool results are cut, the
    longest first."""
    sizes = [_size(one) for one in messages]
    excess_bytes = sum(sizes) - MAX_CONVERSATION_BYTES
    found = list(messages)
    while excess_bytes > 0:
        place = max(range(len(found)), key=lambda i: sizes[i] if found[i].role == "tool" else 0)
        content = found[place].content
        if found[place].role != "tool" or len(content) <= LEAST_RESULT_CHARS:
            break  # nothing is left to cut: the call reports what is too large
        cut = f"{content[: len(content) // 2].removesuffix(CUT)}{CUT}"
        found[place] = found[place].model_copy(update={"content": cut})
        before_bytes, sizes[place] = sizes[place], _size(found[place])
        excess_bytes -= before_bytes - sizes[place]
    return tuple(found)


def for_last(messages: tuple[ChatMessage, ...], last: Last | None) -> tuple[ChatMessage, ...]:
    """Return a conversation, with a note to the model if this is its last round."""
    return messages if last is None else (*messages, ChatMessage(role="user", content=LAST))


CUT = "\n(cut: the conversation is too long)"
LAST = "You cannot use tools any more. Answer now, with what you have."


def _size(message: ChatMessage) -> int:
    return len(to_json(message))


def _refused(reason: str) -> str:
    return f"Error: {reason}."


def _is_only_text(output: Mapping[str, Any], most: int) -> bool:
    """Tell whether a tool's result has a text, and nothing else of which the model, which gets `most`
    characters, would learn more."""
    text, data = output.get("text"), output.get("data")
    if not isinstance(text, str) or not text:
        return False
    if len(text) > most:
        return True
    if output.get("content"):
        return False
    if data is None or data == {"result": text} or data == {"result": text.split("\n")}:
        return True
    if has_many_values(text):
        return False
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(data in (said, {"result": said}))


def _told(result: Any, most: int, *, is_remote: bool) -> str:
    """Return a call's result as the model gets it. For a tool of an MCP server this is its text, if the
    result has only that text and the same content as data, or if the text alone is too long."""
    error = result.get("error") if isinstance(result, dict) else None
    if error is not None:
        said = str(error.get("message") or "it does not say why")
        return f"Error ({error.get('code')}): {said[:MAX_ERROR_CHARS]}"
    output = result.get("output") if isinstance(result, dict) else None
    if is_remote and isinstance(output, dict) and _is_only_text(output, most):
        output = output["text"]
    if not isinstance(output, str) and makes_more_than(most, output):
        return f"{_beginning(output, most)}\n(cut: it has more than {most} characters)"
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    if len(text) <= most:
        return text
    return f"{text[:most]}\n(cut: it has {len(text)} characters)"


def _beginning(value: Any, most: int) -> str:
    """Return the beginning of a value as JSON, of which the rest is not written."""
    written, size = [], 0
    for part in _JSON.iterencode(value):
        written.append(part)
        size += len(part)
        if size >= most:
            break
    return "".join(written)[:most]
