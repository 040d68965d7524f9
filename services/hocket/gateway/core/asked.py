"""What a call sends to its backend, whichever way it was written: our fields, or OpenAI's body as it
came."""

from collections.abc import Iterator
from typing import Any

from hocket.schemas.messages import CallRequest

CHARS_PER_TOKEN = 4
CHARS_PER_CELL = 8
MAX_CHOICES = 128
"""More answers than this no call gets; the HTTP door refuses it."""
MAX_OUTPUT_TOKENS = 10**9


def embeds(request: CallRequest) -> bool:
    """Return whether a call wants embeddings."""
    return bool(request.embed) or (
        request.openai is not None and request.openai.path == "embeddings"
    )


def max_tokens(request: CallRequest) -> int | None:
    """Return how many tokens the answer may have, None where the call does not say."""
    if request.max_tokens is not None or request.openai is None:
        return request.max_tokens
    body = request.openai.body
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return min(value, MAX_OUTPUT_TOKENS)
    return None


def choices(request: CallRequest) -> int:
    """Return how many answers a call wants."""
    if request.openai is None:
        return 1
    counts = (request.openai.body.get(name) for name in ("n", "best_of"))
    wanted = min(max((one for one in counts if isinstance(one, int)), default=1), MAX_CHOICES)
    prompt = request.openai.body.get("prompt")
    if not isinstance(prompt, list) or all(isinstance(one, int) for one in prompt):
        return max(wanted, 1)
    return max(wanted, 1) * len(prompt)


def tokens(request: CallRequest) -> int:
    """Return about how many tokens a call sends."""
    chars = sum(map(len, texts(request)))
    for document in request.documents:
        chars += CHARS_PER_CELL * len(document.columns) * (1 + len(document.rows))
    return 1 + chars // CHARS_PER_TOKEN


def texts(request: CallRequest) -> Iterator[str]:
    """Give the texts that a call sends, in their order."""
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


def _plain(value: Any) -> Iterator[str]:
    """Give the texts in a text, a list of texts, of messages, or of parts of a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield from _plain(item.get("content"))
                yield from _plain(item.get("text"))
            else:
                yield from _plain(item)
