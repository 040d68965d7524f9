"""Converts replies of Anthropic's Messages API to chat completions of OpenAI's API, whole or event
by event.

Anthropic's `input_tokens` exclude tokens read from or written to a cache; `prompt_tokens` include
them. A model's thinking is passed on as `reasoning_content` and `thinking_blocks`, which the caller
sends back with the next turn.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hocket.gateway.core.protocols.anthropic.request import AnswerTool, answer_text
from hocket.gateway.core.protocols.json_size import answer_value
from hocket.gateway.core.protocols.openai_api import ReplyUnreadable, whole_number

MAX_ID_CHARS = 200
"""The length to which a message's id is cut; it is repeated in every chunk of the stream."""
MAX_OPEN_BLOCKS = 64
"""The most blocks of one stream that may be open at once."""
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_DETAILS = "output_tokens_details"


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """The fields common to every body of one reply;
    `call_id` serves as id if the backend gives none."""

    call_id: str
    model: str
    created_s: int


def chat_completion(
    reply: Mapping[str, Any], head: ReplyHead, answer: AnswerTool | None
) -> dict[str, Any]:
    """Return a message as a chat completion; raise ReplyUnreadable if its blocks cannot be read.

    The result has no `choices` if the message has no blocks.
    """
    made: dict[str, Any] = {
        "id": _text(reply.get("id"))[:MAX_ID_CHARS] or head.call_id,
        "object": "chat.completion",
        "created": head.created_s,
        "model": head.model,
        "usage": _usage(reply.get("usage")),
    }
    blocks = reply.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return made
    message = _message(blocks, answer)
    reason = _reason(reply.get("stop_reason"), calls="tool_calls" in message)
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return made | {"choices": [choice]}


def _message(blocks: list[dict[str, Any]], answer: AnswerTool | None) -> dict[str, Any]:
    """Return the message of some blocks; if the answer tool was called, its text is the first call's
    answer alone."""
    texts = [block.get("text") or "" for block in blocks if block.get("type") == "text"]
    thought = [block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
    answers: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in (block for block in blocks if block.get("type") == "tool_use"):
        if answer is not None and block.get("name") == answer.name:
            answers.append(answer_text(answer, block.get("input")))
        else:
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            calls.append(_call(block, arguments))
    message: dict[str, Any] = {"role": "assistant", "content": _joined(answers[:1] or texts)}
    message |= _thinking(thought)
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    return message


def _joined(texts: list[Any]) -> str:
    if not all(isinstance(text, str) for text in texts):
        raise ReplyUnreadable("a block of type `text` contains no text")
    return "".join(texts)


@dataclass(slots=True)
class _Block:
    """An open block of a stream: the number of its tool call, and what was collected so far."""

    kind: str
    number: int = 0
    is_answer: bool = False
    is_spare: bool = False
    """Whether it is an answer after the first."""
    spoke: bool = False
    texts: list[str] = field(default_factory=list)
    whole: dict[str, Any] = field(default_factory=dict)


def _streamed(answer: AnswerTool, text: str) -> str:
    """Return the answer in streamed arguments; the text as it is if it was cut off."""
    arguments = answer_value(text)
    return answer_text(answer, arguments) if isinstance(arguments, dict) else text


class EventStream:
    """Converts the events of one message to chunks of a chat completion."""

    def __init__(self, head: ReplyHead, answer: AnswerTool | None) -> None:
        self._head = head
        self._answer = answer
        self._id = head.call_id
        self._blocks: dict[int, _Block] = {}
        self._counts: dict[str, Any] = {}
        self._held: list[str] = []
        """Text that is left out if the answer tool is called: what a model that thinks says first."""
        self._answered = False
        self._calls = 0
        self._spoke = False
        self.ended = False
        """Whether the message's last event has arrived."""
        self.meters = False
        """Whether the latest event reported how many tokens were used up to it."""

    @property
    def metered(self) -> dict[str, Any] | None:
        """The usage of the message so far, as a chunk with nothing else; None if the backend has
        not reported any."""
        if not self._counts:
            return None
        return {**self._frame(), "choices": [], "usage": _usage(self._counts)}

    def add(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the chunks for the next event, or raise ReplyUnreadable."""
        self.meters = False
        try:
            return [self._chunk(*delta) for delta in self._deltas(event)]
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ReplyUnreadable("an event is not one of the Messages API") from error

    def _deltas(self, event: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
        kind = event.get("type")
        if kind == "message_start":
            message = event["message"]
            self._id = _text(message.get("id"))[:MAX_ID_CHARS] or self._id
            self._meter(message.get("usage"))
            self.meters = bool(self._counts)
        elif kind == "content_block_start":
            yield from self._begun(event["index"], event["content_block"])
        elif kind == "content_block_delta":
            yield from self._more(self._blocks[event["index"]], event["delta"])
        elif kind == "content_block_stop":
            yield from self._done(self._blocks.pop(event["index"]))
        elif kind == "message_delta":
            self._meter(event.get("usage"))
            self.meters = _counts_written(event.get("usage"))
            reason = event["delta"].get("stop_reason")
            if reason is not None:
                if self._held and not self._answered:
                    yield {"content": "".join(self._held)}, None
                yield {}, _reason(reason, calls=self._calls > 0)
        elif kind == "message_stop":
            self.ended = True

    def _begun(
        self, index: int, found: Mapping[str, Any]
    ) -> Iterator[tuple[dict[str, Any], str | None]]:
        if len(self._blocks) >= MAX_OPEN_BLOCKS:
            raise ReplyUnreadable(f"more than {MAX_OPEN_BLOCKS} blocks are open")
        kind = str(found.get("type"))
        block = self._blocks[index] = _Block(kind)
        if kind == "tool_use":
            block.is_answer = self._answer is not None and found.get("name") == self._answer.name
            if block.is_answer:
                block.is_spare, self._answered = self._answered, True
            else:
                block.number = self._calls
                self._calls += 1
                yield {"tool_calls": [{"index": block.number, **_call(found, "")}]}, None
        elif kind == "text" and found.get("text"):
            yield from self._said(found["text"])
        elif kind in ("thinking", "redacted_thinking"):
            block.whole = dict(found)

    def _more(
        self, block: _Block, delta: Mapping[str, Any]
    ) -> Iterator[tuple[dict[str, Any], str | None]]:
        kind = delta.get("type")
        if kind == "text_delta":
            yield from self._said(delta["text"])
        elif kind == "input_json_delta" and block.kind == "tool_use":
            yield from self._argued(block, delta["partial_json"])
        elif kind == "thinking_delta":
            block.texts.append(delta["thinking"])
            yield {"reasoning_content": delta["thinking"]}, None
        elif kind == "signature_delta":
            block.whole["signature"] = delta["signature"]

    def _argued(self, block: _Block, piece: str) -> Iterator[tuple[dict[str, Any], str | None]]:
        """Yield the delta for a piece of the arguments of a tool that the caller runs; those that the
        server runs itself are no calls."""
        if not piece or block.is_spare:
            return
        block.spoke = True
        if not block.is_answer:
            yield {"tool_calls": [{"index": block.number, "function": {"arguments": piece}}]}, None
        elif self._answer is not None and self._answer.wrapped:
            block.texts.append(piece)
        else:
            yield {"content": piece}, None

    def _said(self, text: str) -> Iterator[tuple[dict[str, Any], str | None]]:
        if self._answer is None:
            yield {"content": text}, None
        else:
            self._held.append(text)

    def _done(self, block: _Block) -> Iterator[tuple[dict[str, Any], str | None]]:
        if block.kind in ("thinking", "redacted_thinking"):
            if block.texts:
                block.whole["thinking"] = "".join(block.texts)
            yield {"thinking_blocks": [block.whole]}, None
        elif block.kind == "tool_use" and not block.is_answer and not block.spoke:
            call = {"index": block.number, "function": {"arguments": "{}"}}
            yield {"tool_calls": [call]}, None
        elif block.is_spare:
            return
        elif block.is_answer and self._answer is not None and self._answer.wrapped:
            yield {"content": _streamed(self._answer, "".join(block.texts))}, None
        elif block.is_answer and not block.spoke:
            yield {"content": "{}"}, None

    def _meter(self, found: Any) -> None:
        """Update the counts, which always cover the whole message so far."""
        if isinstance(found, dict):
            told = (name for name in (*_COUNTS, _DETAILS) if found.get(name) is not None)
            self._counts |= {name: found[name] for name in told}
            _usage(self._counts)  # raises unless they are valid counts

    def _chunk(self, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        """Return a chunk; the first one carries the role.

        The role is sent only together with the first content, because until then another backend
        may be asked.
        """
        if not self._spoke:
            self._spoke = True
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._frame(), "choices": [choice]}

    def _frame(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._head.created_s,
            "model": self._head.model,
        }


def _call(block: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    function = {"name": str(block.get("name", "")), "arguments": arguments}
    return {"id": str(block.get("id", "")), "type": "function", "function": function}


def _thinking(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    if not blocks:
        return {}
    said = "".join(_text(block.get("thinking")) for block in blocks)
    return {"reasoning_content": said or None, "thinking_blocks": blocks}


def _reason(reason: Any, *, calls: bool) -> str:
    """Return the finish reason; an answer delivered by the answer tool ends with `stop`."""
    found = _REASONS.get(str(reason), "stop")
    return "stop" if found == "tool_calls" and not calls else found


def _usage(found: Any) -> dict[str, Any] | None:
    """Return the counts in OpenAI's format, in which the input includes cached tokens."""
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise ReplyUnreadable("`usage` is not an object")
    fresh, made, read, written = (_count(found, name) for name in _COUNTS)
    prompt = None if fresh is None else fresh + (read or 0) + (written or 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": (prompt or 0) + (made or 0),
        "prompt_tokens_details": {"cached_tokens": read or 0, "cache_write_tokens": written or 0},
    } | _thinking_counted(found.get(_DETAILS), made or 0)


def _thinking_counted(details: Any, made: int) -> dict[str, Any]:
    """Return the field that says how many of the tokens written are thinking, if the backend does."""
    thought = whole_number(details.get("thinking_tokens")) if isinstance(details, dict) else None
    if type(thought) is not int or thought < 0:
        return {}
    return {"completion_tokens_details": {"reasoning_tokens": min(thought, made)}}


def _counts_written(found: Any) -> bool:
    return isinstance(found, Mapping) and found.get("output_tokens") is not None


def _count(found: Mapping[str, Any], name: str) -> int | None:
    value = whole_number(found.get(name))
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ReplyUnreadable(f"`usage.{name}` is not a count of tokens")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
