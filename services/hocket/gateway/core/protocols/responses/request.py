"""Converts a request of OpenAI's Responses API to the body of a chat completion. Pure.

No state is kept between calls, so `input` is the whole conversation: messages, function calls,
their outputs, and the model's reasoning (`thinking.py`). Bodies have already been checked by
`api/http/responses_body.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hocket.gateway.core.calls.body_fields import (
    CACHE_CONTROL,
    ENGINE_FIELDS,
    OF_SOUND,
    OPENAI_FIELDS,
)
from hocket.gateway.core.calls.request_content import REASONING_CONTENT, RESPONSE_LIMIT
from hocket.gateway.core.protocols.json_size import marks
from hocket.gateway.core.protocols.responses.answer import REASONING_FIELD, added_to
from hocket.gateway.core.protocols.responses.thinking import (
    MAX_THINKING_VALUES,
    blocks_of,
    unpacked,
)
from hocket.schemas.errors import InvalidInput

RESPONSES = "responses"
TRANSLATED = frozenset(
    """
    background conversation include input instructions max_output_tokens max_tool_calls metadata
    previous_response_id prompt reasoning store stream_options text tool_choice tools top_logprobs
    truncation
    """.split()
)
"""Fields of the Responses API that mean something else in a chat completion, or nothing."""
_SAMPLING = frozenset({"frequency_penalty", "presence_penalty", "seed", "stop", "logit_bias"})
_SHARED = frozenset(
    """
    model parallel_tool_calls prompt_cache_key prompt_cache_options prompt_cache_retention
    safety_identifier stream temperature top_p user
    """.split()
)
CHAT_ONLY = (OPENAI_FIELDS | OF_SOUND) - TRANSLATED - _SHARED - _SAMPLING
"""Fields of chat completions that the Responses API lacks or names differently."""
_ECHOED = frozenset({"max_tool_calls", "metadata", "stream_options"})
PASSED_FIELDS = (ENGINE_FIELDS | _SAMPLING | _SHARED) - TRANSLATED | _ECHOED
"""Fields accepted unchanged: those forwarded as in a chat completion,
and those that have no effect here."""
_CACHE_MARKS = (CACHE_CONTROL, "prompt_cache_breakpoint")
"""Fields that mark the end of a prefix to cache: Anthropic's, and OpenAI's."""
_Content = str | list[dict[str, Any]]


def chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the chat completion from which the response is made.

    Its limit keeps its name until a backend is known (`openai_api.outgoing`).
    """
    chat = {
        name: value for name, value in body.items() if name not in TRANSLATED and value is not None
    }
    chat["messages"] = _messages(body)
    if body.get(RESPONSE_LIMIT) is not None:
        chat[RESPONSE_LIMIT] = int(body[RESPONSE_LIMIT])
    if body.get("tools"):
        chat["tools"] = [_tool(tool) for tool in body["tools"]]
        if body.get("tool_choice") is not None:
            chat["tool_choice"] = _tool_choice(body["tool_choice"])
    else:
        chat.pop("parallel_tool_calls", None)  # refused in chat completions without tools
    return chat | _options(body)


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields about the format and style of the answer."""
    text = body.get("text") or {}
    form = text.get("format") or {}
    options: dict[str, Any] = {}
    if form.get("type") == "json_schema":
        options["response_format"] = {"type": "json_schema", "json_schema": _without(form, "type")}
    elif form.get("type") == "json_object":
        options["response_format"] = {"type": "json_object"}
    if text.get("verbosity") is not None:
        options["verbosity"] = text["verbosity"]
    effort = (body.get("reasoning") or {}).get("effort")
    if effort is not None:
        options["reasoning_effort"] = effort
    return options


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    turns = _Turns()
    if body.get("instructions"):
        turns.add({"role": "system", "content": body["instructions"]})
    given = body["input"]
    if isinstance(given, str):
        turns.add({"role": "user", "content": given})
        return turns.messages()
    thoughts = _Thoughts()
    for item in given:
        kind = item.get("type") or "message"
        if kind == "reasoning":
            turns.think(thoughts.read(item), _reasoning(item))
        elif kind == "function_call_output":
            content = _content(item["output"])
            result = {"role": "tool", "tool_call_id": item["call_id"], "content": content}
            turns.answer(result | _cache_marks(item))
        elif kind == "function_call":
            turns.call(_call(item) | _cache_marks(item))
        elif item["role"] == "assistant":
            turns.say({"content": _content(item["content"])} | _cache_marks(item))
        else:
            role = "user" if item["role"] == "user" else "system"
            turns.add({"role": role, "content": _content(item["content"])} | _cache_marks(item))
    return turns.messages()


class _Thoughts:
    """Reads the reasoning items of one request, up to a total number of values."""

    def __init__(self) -> None:
        self._values = 0

    def read(self, item: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the blocks of an item, or raise InvalidInput."""
        packed = unpacked(item.get("encrypted_content"))
        self._values += marks(packed)
        if self._values > MAX_THINKING_VALUES:
            reason = f"its reasoning items hold more than {MAX_THINKING_VALUES} values"
            raise InvalidInput(field="input", reason=reason, cure="Send fewer of them.")
        return blocks_of(packed)


@dataclass(slots=True, eq=False)
class _Turn:
    """A message, what the assistant says and thought in it, and the outputs of its function calls."""

    message: dict[str, Any]
    said: list[_Content] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages of the turn."""
        content = {"content": _joined(self.said)} if self.said else {}
        thought = {REASONING_CONTENT: "\n\n".join(self.thought)} if self.thought else {}
        yield self.message | content | thought
        yield from self.outputs

    @property
    def is_words(self) -> bool:
        """Whether it is nothing but words of the assistant."""
        return bool(self.said) and not {"tool_calls", "thinking_blocks"} & self.message.keys()


class _Turns:
    """The turns of a conversation.

    Function calls belong to the preceding assistant message, and so does what the assistant said after
    them, before their outputs: a conversation that ends with outputs must not end with its words.
    Reasoning always starts a turn. Outputs follow the turn with their call, whatever others said in
    between, because chat completions want that.
    """

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._callers: dict[str, _Turn] = {}
        """The turn of each function call, by its id."""
        self._open: _Turn | None = None
        """The assistant's turn that more calls may join."""
        self._thinking: list[dict[str, Any]] = []
        self._thought: list[str] = []

    def add(self, message: dict[str, Any]) -> None:
        """Add a message of somebody else than the assistant; reasoning in text goes not beyond it."""
        self._append(message)
        self._thought.clear()

    def think(self, blocks: list[dict[str, Any]], text: str) -> None:
        """Add reasoning, which begins the assistant's next turn: signed blocks, otherwise text."""
        self._thinking += blocks
        if text and not blocks:
            self._thought.append(text)

    def say(self, said: dict[str, Any]) -> None:
        """Add a message of the assistant with these fields."""
        turn = self._open
        if self._has_thought or turn is None or "tool_calls" not in turn.message:
            turn = self._begun()
        turn.said.append(said["content"])
        turn.message.update(_without(said, "content"))

    def call(self, call: dict[str, Any]) -> None:
        """Add a function call."""
        turn = self._begun() if self._has_thought or self._open is None else self._open
        turn.message.setdefault("tool_calls", []).append(call)
        self._callers[call["id"]] = turn

    def answer(self, output: dict[str, Any]) -> None:
        """Add the output of a function call; one of a call that is not known stays where it is."""
        caller = self._callers.get(output["tool_call_id"])
        if caller is None:
            self._append(output)
            return
        caller.outputs.append(output)
        last = self._turns[-1]
        if last.is_words and self._turns[-2:-1] == [caller]:
            caller.said += last.said
            caller.thought += last.thought
            caller.message.update(_without(last.message, "content"))
            self._turns.pop()
        if self._open in (caller, last):
            self._open = None

    def messages(self) -> list[dict[str, Any]]:
        """Return all messages in order."""
        return [message for turn in self._turns for message in turn.messages()]

    def _append(self, message: dict[str, Any]) -> None:
        """Add a message of somebody else, which ends the assistant's turn."""
        self._turns.append(_Turn(message))
        self._open = None

    def _begun(self) -> _Turn:
        """Return a new turn of the assistant."""
        turn = self._open = _Turn({"role": "assistant", "content": None})
        self._turns.append(turn)
        if self._thinking:
            turn.message["thinking_blocks"] = self._thinking
            self._thinking = []
        turn.thought, self._thought = self._thought, []
        return turn

    @property
    def _has_thought(self) -> bool:
        """Whether there is reasoning that begins the next turn."""
        return bool(self._thinking or self._thought)


def _joined(contents: Sequence[_Content]) -> _Content:
    """Return the contents of messages as one."""
    some = [content for content in contents if content] or contents[-1:]
    if len(some) == 1:
        return some[0]
    texts = [content for content in some if isinstance(content, str)]
    if len(texts) == len(some):
        return "\n\n".join(texts)
    return [part for content in some for part in _parts(content)]


def _parts(content: _Content) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _reasoning(item: Mapping[str, Any]) -> str:
    """Return the text of a reasoning item as far as it goes back to a backend: it stays away unless the
    item says that its backend takes it."""
    parts = item.get("content")
    if item.get(REASONING_FIELD) != REASONING_CONTENT or not isinstance(parts, list):
        return ""
    return "".join(
        part["text"]
        for part in parts
        if isinstance(part, dict)
        and part.get("type") == "reasoning_text"
        and isinstance(part.get("text"), str)
    )


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item["arguments"]}
    call = {"id": item["call_id"], "type": "function", "function": function}
    return call | added_to(item)


def _content(content: str | Sequence[Mapping[str, Any]]) -> _Content:
    """Return the content of a message; if it is only text without cache marks, as a single string,
    which every engine accepts."""
    if isinstance(content, str):
        return content
    parts = [_part(part) for part in content]
    if all(part.keys() == {"type", "text"} for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    return _part_alone(part) | _cache_marks(part)


def _cache_marks(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {name: holder[name] for name in _CACHE_MARKS if holder.get(name) is not None}


def _part_alone(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    if kind == "input_image":
        image = {"url": part["image_url"]}
        if part.get("detail") is not None:
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        file = {
            name: part[name] for name in ("file_data", "filename") if part.get(name) is not None
        }
        return {"type": "file", "file": file}
    return {"type": "text", "text": part["refusal"] if kind == "refusal" else part["text"]}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in names if tool.get(name) is not None}
    mark = {CACHE_CONTROL: tool[CACHE_CONTROL]} if tool.get(CACHE_CONTROL) is not None else {}
    return {"type": "function", "function": function} | mark


def _tool_choice(choice: str | Mapping[str, Any]) -> str | dict[str, Any]:
    if isinstance(choice, str):
        return choice
    return {"type": "function", "function": {"name": choice["name"]}}


def _without(form: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in form.items() if key != name and value is not None}
