"""What a call sends to its backend, whether given in Hocket's own fields or as an OpenAI body."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import to_json

from hocket.gateway.core.content.content_notes import noted
from hocket.schemas.messages import CallRequest, Document

CHARS_PER_TOKEN = 4
CHARS_PER_CELL = 8
CHARS_PER_MESSAGE = 4 * CHARS_PER_TOKEN
"""The least counted for a message, because templates put its role and its end around it."""
MEDIA_TOKENS = 1_000
"""The least number of tokens counted for an image. A linked one counts as this many, because nothing
is known of its size; audio and files count by size."""
CHARS_PER_MEDIA_TOKEN = 100
_TEXT_FILE = "data:text/"
"""The beginning of a file that is text, in base64."""
LARGE_TOKENS = 25_000
"""A call that sends so many tokens is converted in a thread, because that takes long."""
MAX_CHOICES = 128
"""The most answers one call may ask for; the HTTP API refuses more."""
MAX_OUTPUT_TOKENS = 10**9
WORST_OUTPUT_TOKENS = 16_384
"""The length of answer reckoned as the worst case if `max_tokens` is not set, nor more demanded. With
`reserve: worst` it is sent as the limit, unless the backend has `max_output_tokens`."""
PREFILL = "prefill"
"""The task of a call that only has a prompt read ahead of time, and asks for one token."""
THINKING_BLOCKS = "thinking_blocks"
"""The field of a message with the thinking of Anthropic's models, which they sign. Others have no use
for it, and strict servers refuse a message with it."""
REASONING_CONTENT = "reasoning_content"
"""The field of a message with reasoning as text. DeepSeek needs that of a turn with tool calls; some
strict servers refuse a message with it."""
RESPONSE_LIMIT = "max_output_tokens"
"""The limit of an answer to a request of the Responses API. Its chat completion has it under this name
until a backend is known, which then gets it under the name that it takes."""
_LIMITS = ("max_completion_tokens", "max_tokens", RESPONSE_LIMIT)
_UNREAD = frozenset({"model", "role", "type", "user", "metadata"})
"""Texts of a body or of a message that no model reads."""
_MEDIA = frozenset({"url", "data", "file_data"})
"""Fields of a message's parts that hold something other than text: a link, or a file's content."""
_STRUCTURE = frozenset({"content", "text", "image_url", "arguments"})
"""Structural field names of the OpenAI API, which models do not read."""


def embeds(request: CallRequest) -> bool:
    """Return whether a call asks for embeddings."""
    return bool(request.embed) if request.openai is None else request.openai.path == "embeddings"


def max_tokens(request: CallRequest) -> int | None:
    """Return how many tokens the answer may have; None if the call does not say."""
    return request.max_tokens if request.openai is None else most_tokens(request.openai.body)


def most_tokens(body: Mapping[str, Any]) -> int | None:
    """Return how many tokens an OpenAI body allows its answer.

    If it has several limits, the largest counts, because engines differ in which one they honour.
    """
    limits = [
        min(value, MAX_OUTPUT_TOKENS)
        for value in map(body.get, _LIMITS)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
    ]
    return max(limits, default=None)


def answer_tokens(request: CallRequest, otherwise: int) -> int:
    """Return how many tokens an answer may have: its limit or, without one, `otherwise` and its
    thinking, or as many as the call demands (`min_tokens`, `ignore_eos`)."""
    thought = 0 if request.openai is None else thinking_tokens(request.openai.body)
    return max_tokens(request) or max(otherwise + thought, _least_tokens(request))


def limited(request: CallRequest, otherwise: int) -> CallRequest:
    """Return a call that cannot write more than `answer_tokens`: with that as its limit, if it has none.

    A legacy completion stays as it is: without a limit, OpenAI's API writes 16 tokens, and a larger one
    would make the answer longer. A limit that is none (null, -1) is replaced.
    """
    if embeds(request) or max_tokens(request) is not None:
        return request
    limit = answer_tokens(request, otherwise)
    if request.openai is None:
        return request.model_copy(update={"max_tokens": limit})
    sent = request.openai.body
    if request.openai.path == "completions" and all(sent.get(name) is None for name in _LIMITS):
        return request
    body = {name: value for name, value in sent.items() if name not in _LIMITS}
    body[RESPONSE_LIMIT] = limit
    return request.model_copy(update={"openai": request.openai.model_copy(update={"body": body})})


def written_tokens(request: CallRequest, otherwise: int) -> int:
    """Return how many tokens all answers of a call may have together, each one without a limit
    `otherwise`."""
    return min(choices(request) * answer_tokens(request, otherwise), MAX_OUTPUT_TOKENS)


def thinking_tokens(body: Mapping[str, Any]) -> int:
    """Return how many tokens of thinking an OpenAI body asks Anthropic's models for; the answer
    comes after them."""
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return 0
    budget = thinking.get("budget_tokens")
    return min(max(budget, 0), MAX_OUTPUT_TOKENS) if type(budget) is int else 0


def usual_tokens(request: CallRequest, usual: int) -> int:
    """Return how many tokens an answer has that is as long as is usual, if the call allows it."""
    return min(max(usual, _least_tokens(request)), max_tokens(request) or MAX_OUTPUT_TOKENS)


def _least_tokens(request: CallRequest) -> int:
    """Return how many tokens an answer has at least.

    With `ignore_eos` an engine writes on up to the limit or, without one, to the end of its context.
    """
    if request.openai is None:
        return 0
    least = request.openai.body.get("min_tokens")
    demanded = least if isinstance(least, int) else 0
    if request.openai.body.get("ignore_eos"):
        return max(max_tokens(request) or WORST_OUTPUT_TOKENS, demanded)
    return demanded


def choices(request: CallRequest) -> int:
    """Return how many answers a call has written."""
    return _answers(request, ("n", "best_of"))


def returned_choices(request: CallRequest) -> int:
    """Return how many answers a call gets: of `best_of`, only those that were chosen."""
    return _answers(request, ("n",))


def _answers(request: CallRequest, fields: tuple[str, ...]) -> int:
    if request.openai is None:
        return 1
    counts = (request.openai.body.get(name) for name in fields)
    wanted = min(max((one for one in counts if isinstance(one, int)), default=1), MAX_CHOICES)
    is_completion = request.openai.path == "completions"
    prompt = request.openai.body.get("prompt") if is_completion else None
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):  # token ids
        return max(wanted, 1)
    return max(wanted, 1) * len(prompt)


def tokens(request: CallRequest) -> int:
    """Return roughly how many tokens a call sends; they are counted once, because a large request
    takes long to count.

    Everything its backend receives counts, because backends charge for tools, schemas, tables and
    token ids as for words. A character that is not ASCII counts with its bytes.
    """
    return noted(request, "_tokens", _count)


def _count(request: CallRequest) -> int:
    chars = sum(map(_size, request.embed))
    for message in request.messages:
        calls = _json_chars(message.tool_calls) if message.tool_calls else 0
        chars += max(_size(message.content) + calls, CHARS_PER_MESSAGE)
    chars += sum(map(_document_chars, request.documents))
    if request.tools:
        chars += _json_chars(request.tools)
    if request.response_schema is not None:
        chars += _json_chars(request.response_schema)
    if request.openai is not None:
        chars += sum(map(_body_chars, request.openai.body.keys(), request.openai.body.values()))
    return 1 + chars // CHARS_PER_TOKEN


def texts(request: CallRequest) -> Iterator[str]:
    """Yield the texts that a call sends, in order."""
    for message in request.messages:
        yield message.content
    for document in request.documents:
        yield document.title
        yield document.text
    yield from request.embed
    if request.openai is not None:
        body = request.openai.body
        yield from _plain(body.get("messages"))
        yield from _plain(body.get("prompt"))
        yield from _plain(body.get("input"))
        yield from _plain(body.get("documents"))


def _plain(value: Any) -> Iterator[str]:
    """Yield the texts in a text, a list of texts or messages, or the parts of a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and not _are_ids(value):
        for item in value:
            if isinstance(item, dict):
                yield from _plain(item.get("content"))
                yield from _plain(item.get("text"))
            else:
                yield from _plain(item)


def _document_chars(document: Document) -> int:
    chars = _size(document.title) + _size(document.source) + _size(document.text)
    chars += sum(_cell_chars(cell) for cell in document.columns)
    return chars + sum(_cell_chars(cell) for row in document.rows for cell in row)


def _cell_chars(cell: Any) -> int:
    return max(_size(cell) if isinstance(cell, str) else _json_chars(cell), CHARS_PER_CELL)


def _body_chars(name: str, value: Any) -> int:
    """Return the characters of a field of a body; parameters that are no text or list do not count."""
    if name in _UNREAD:
        return 0
    if isinstance(value, str):
        return _size(value)
    if name == "messages" and isinstance(value, list):
        return sum(max(_chars(message), CHARS_PER_MESSAGE) for message in value)
    if name in ("prompt", "input"):
        return _chars(value)
    return _json_chars(value) if isinstance(value, list | dict) else 0


def _json_chars(value: Any) -> int:
    """Return the length of a value that a model reads as JSON: a tool, a schema."""
    return len(to_json(value))


def _size(text: str) -> int:
    """Return the bytes of a text in UTF-8, because a word in other letters has more tokens."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _chars(value: Any) -> int:
    """Return roughly how many characters of a message or a prompt a model reads: its texts and
    names, plus one token per number."""
    chars = 0
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            chars += max(_size(one), CHARS_PER_TOKEN)
        elif isinstance(one, list):
            if _are_ids(one):
                chars += CHARS_PER_TOKEN * len(one)
            else:
                waiting.extend(one)
        elif isinstance(one, dict):
            chars += _field_chars(one, waiting)
        elif one is not None and not isinstance(one, bool):
            chars += CHARS_PER_TOKEN
    return chars


def _are_ids(value: list[Any]) -> bool:
    """Return whether a list holds only integers: token ids, of which there may be millions."""
    return set(map(type, value)) == {int}


def _field_chars(fields: Mapping[Any, Any], waiting: list[Any]) -> int:
    """Return the characters of an object's names, media and tool calls; append its other values to
    `waiting`."""
    chars = 0
    for name, held in fields.items():
        is_text = isinstance(held, str)
        if is_text and name in _UNREAD:
            continue
        if is_text and name in _MEDIA:
            chars += _media_chars(held)
        elif name == "tool_calls":
            chars += _json_chars(held)
        else:
            chars += 0 if name in _STRUCTURE else len(str(name))
            waiting.append(held)
    return chars


def _media_chars(held: str) -> int:
    if held.startswith(_TEXT_FILE):
        return len(held) * 3 // 4
    return CHARS_PER_TOKEN * max(len(held) // CHARS_PER_MEDIA_TOKEN, MEDIA_TOKENS)
