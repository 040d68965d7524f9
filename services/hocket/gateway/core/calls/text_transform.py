"""Applies a change to every text in a call or its answer, leaving the structure as it is.

Anything that cannot contain what a person wrote is left unchanged: model names, tool definitions,
schemas, grammars, token ids, and a model's signed thinking. A file of a call is changed if it is text
(`core/content/data_urls.py`); an image or a PDF is not read, and no file of an answer.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hocket.gateway.core.calls.request_content import THINKING_BLOCKS
from hocket.gateway.core.content.data_urls import (
    FILE_DATA,
    data_url,
    file_with_text,
    text_or_file,
)
from hocket.schemas.messages import CallRequest, Completion

Change = Callable[[str], str]
Check = Callable[[], None]
"""Called for each list and object; may raise an exception, to stop."""

_BODY_FIELDS = (
    "messages",
    "prompt",
    "input",
    "documents",
    "user",
    "safety_identifier",
    "metadata",
    "prediction",
    "suffix",
    "stop",
)
_CACHE_KEY = "prompt_cache_key"
"""The field of a body by which a provider finds what it keeps of earlier calls. One with texts that are
changed is left out: it would have to stay the same from call to call, and differ between callers."""
REASONING = ("reasoning_content", "reasoning")
"""The fields of an answer's message that hold reasoning as text; some engines send both. The signed
`thinking_blocks` stay as they are, because their provider takes them back only unchanged."""
TEXTS = (*REASONING, "content", "refusal")
"""The fields of an answer's message that hold text."""
LEGACY_CALL = "function_call"
"""The field of an answer's message that holds a call of one of the legacy `functions`."""
_LONG_NUMBER = 10**12


def _unchecked() -> None:
    """Stop nothing."""


def with_texts(request: CallRequest, change: Change, check: Check = _unchecked) -> CallRequest:
    """Return a call with each of its texts changed."""
    read = partial(text_or_file, change=change)
    read_file = partial(file_with_text, change=change)
    updates: dict[str, Any] = {
        "messages": tuple(
            one.model_copy(
                update={
                    "content": change(one.content),
                    "tool_calls": tuple(deep(call, read, check) for call in one.tool_calls),
                }
            )
            for one in request.messages
        ),
        "documents": tuple(
            one.model_copy(
                update={
                    "title": change(one.title),
                    "source": change(one.source),
                    "text": change(one.text),
                    "rows": tuple(tuple(deep(row, change, check)) for row in one.rows),
                }
            )
            for one in request.documents
        ),
        "embed": tuple(change(text) for text in request.embed),
    }
    if request.openai is not None:
        body = request.openai.body
        changed = body | {
            name: deep(body[name], read, check, read_file) for name in _BODY_FIELDS if name in body
        }
        key = changed.get(_CACHE_KEY)
        if deep(key, read, check) != key:
            del changed[_CACHE_KEY]
        updates["openai"] = request.openai.model_copy(update={"body": changed})
    return request.model_copy(update=updates)


def texts_of(request: CallRequest, check: Check = _unchecked) -> list[str]:
    """Return each text that `with_texts` changes."""
    found: list[str] = []

    def collect(text: str) -> str:
        found.append(text)
        return text

    with_texts(request, collect, check)
    return found


def is_short(request: CallRequest, most_chars: int) -> bool:
    """Return whether what `with_texts` looks through has at most so many characters; anything that is
    no text counts as one, and so do an empty text and an image. A file of text counts as it is sent."""
    waiting: list[Any] = [request.embed]
    waiting += [(one.content, one.tool_calls) for one in request.messages[: most_chars + 1]]
    for document in request.documents[: most_chars + 1]:
        waiting.append((document.title, document.source, document.text, document.rows))
    if request.openai is not None:
        waiting += map(request.openai.body.get, (*_BODY_FIELDS, _CACHE_KEY))
    return _are_short(waiting, most_chars)


def is_short_answer(answer: Completion, most_chars: int) -> bool:
    """Return whether what `answer_with_texts` looks through has at most so many characters, counted as
    in a call."""
    choices = (answer.openai or {}).get("choices")
    waiting: list[Any] = [answer.text, answer.data, answer.tool_calls]
    for choice in choices[: most_chars + 1] if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            waiting += [choice.get("text"), choice.get("message")]
    return _are_short(waiting, most_chars)


def _are_short(waiting: list[Any], most_chars: int) -> bool:
    left = most_chars + len(waiting)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            left -= max(len(value), 1) if _is_read(value) else 1
        elif isinstance(value, dict | list | tuple):
            left -= 1
            if len(value) > left:
                return False
            waiting.extend(value.values() if isinstance(value, dict) else value)
        else:
            left -= 1
        if left < 0:
            return False
    return True


def answer_with_texts(answer: Completion, change: Change, in_json: Change) -> Completion:
    """Return an answer with each of its texts changed; `in_json` changes those that are JSON."""
    updates: dict[str, Any] = {"text": change(answer.text)}
    if answer.data is not None:
        updates["data"] = deep(answer.data, change)
    if answer.tool_calls:
        updates["tool_calls"] = tuple(calls_of(list(answer.tool_calls), in_json))
    if answer.openai is not None:
        updates["openai"] = _reply(answer.openai, change, in_json)
    return answer.model_copy(update=updates)


def deep(
    value: Any, change: Change, check: Check = _unchecked, of_file: Change | None = None
) -> Any:
    """Return a JSON value with every text in it changed, but not its keys; a number as long as that of
    a card counts as text. `of_file` changes what `file_data` holds."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        check()
        return {key: _field(key, one, change, check, of_file) for key, one in value.items()}
    if isinstance(value, list | tuple):
        check()
        if _is_ids(value):
            return list(value)
        return [deep(one, change, check, of_file) for one in value]
    if type(value) is int and value >= _LONG_NUMBER:
        text = str(value)
        return value if (changed := change(text)) == text else changed
    return value


def _field(key: Any, value: Any, change: Change, check: Check, of_file: Change | None) -> Any:
    if key == THINKING_BLOCKS:
        return _unsigned(value, change, check)
    if key == FILE_DATA and of_file is not None and isinstance(value, str):
        return of_file(value)
    return deep(value, change, check, of_file)


def _is_ids(values: Sequence[Any]) -> bool:
    """Tell whether values are short whole numbers, such as token ids: there may be millions."""
    return set(map(type, values)) == {int} and max(values) < _LONG_NUMBER


def _unsigned(blocks: Any, change: Change, check: Check) -> Any:
    """Return thinking blocks of which those are changed that their provider did not sign: it refuses
    the turn if others come back with another text."""
    if not isinstance(blocks, list):
        return deep(blocks, change, check)
    return [block if _is_signed(block) else deep(block, change, check) for block in blocks]


def _is_signed(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    is_thought = block.get("type") == "thinking" and bool(block.get("signature"))
    return is_thought or block.get("type") == "redacted_thinking"


def _is_read(text: str) -> bool:
    """Tell whether a text is one, or a file of text."""
    url = data_url(text)
    return url is None or url.is_text


def calls_of(calls: list[Any], in_json: Change) -> list[Any]:
    """Return OpenAI tool calls with their arguments (JSON as text) changed."""
    return [_with_arguments(call, in_json) for call in calls]


def _with_arguments(call: Any, in_json: Change) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    return {**call, "function": {**function, "arguments": in_json(function["arguments"])}}


def _reply(reply: dict[str, Any], change: Change, in_json: Change) -> dict[str, Any]:
    choices = reply.get("choices")
    if not isinstance(choices, list):
        return reply
    return {**reply, "choices": [_choice(one, change, in_json) for one in choices]}


def _choice(choice: Any, change: Change, in_json: Change) -> Any:
    if not isinstance(choice, dict):
        return choice
    changed = dict(choice)
    if isinstance(choice.get("text"), str):
        changed["text"] = change(choice["text"])
    message = choice.get("message")
    if isinstance(message, dict):
        told = message | {name: deep(message[name], change) for name in TEXTS if name in message}
        if isinstance(message.get("tool_calls"), list):
            told["tool_calls"] = calls_of(message["tool_calls"], in_json)
        if LEGACY_CALL in message:
            (called,) = calls_of([{"function": message[LEGACY_CALL]}], in_json)
            told[LEGACY_CALL] = called["function"]
        changed["message"] = told
    return changed
