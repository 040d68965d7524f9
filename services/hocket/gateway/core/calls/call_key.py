"""By what a gateway knows a call: its id, whose call it is, and what it asks.

Callers choose the ids of their calls, so an id alone would let one step of a run, or one key of a
tenant, have the reply of another's call, or leave it a reply of its own choice. And if a crash took
the end of a log, an attempt may be handed out again with another input: its calls have the same ids
and other prompts.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from pydantic_core import to_json

from hocket.gateway.core.calls.request_content import LARGE_TOKENS, tokens
from hocket.gateway.core.protocols.json_parts import parts
from hocket.schemas.labels import KEY_LABEL
from hocket.schemas.messages import QUESTION_FIELDS, CallRequest, HeldCall

_FIELDS = frozenset(QUESTION_FIELDS - {"openai"})
_NOT_ASKED = frozenset({"stream", "stream_options", "metadata", "user"})
"""Fields of a body that say in how many pieces the answer is sent, and whose call it is."""
_DIGEST_HEX = 32


class CallKey(NamedTuple):
    """The key of a call: only a repeat by the same dispatch of a step, or with the same platform key,
    is the same call."""

    tenant: str
    call_id: str
    run_id: str | None = None
    step: str | None = None
    dispatched_at_ms: float | None = None
    key_id: str | None = None

    @classmethod
    def of(cls, request: CallRequest) -> Self:
        """Return the key of a call."""
        who = request.attribution
        key_id = (who.labels or {}).get(KEY_LABEL)
        at_ms = request.dispatched_at_ms
        return cls(who.tenant, request.call_id, who.run_id, who.step, at_ms, key_id)

    @classmethod
    def of_held(cls, held: HeldCall) -> Self:
        """Return the key of a call that another gateway asks about."""
        return cls(held.tenant, held.call_id, held.run_id, held.step, held.dispatched_at_ms)


def asks_the_same(one: CallRequest, other: CallRequest) -> bool:
    """Return whether two calls ask the same, whatever their deadlines and budgets are, and whether as
    a stream or not."""
    if one is other:
        return True
    same = all(getattr(one, name) == getattr(other, name) for name in _FIELDS)
    return same and _body(one) == _body(other)


def digest(request: CallRequest) -> str | None:
    """Return a digest of what a call asks: two calls that ask the same have the same; None if its
    content cannot be encoded. Of a large request it is made in parts, after each of which other
    threads get a turn."""
    hashed = hashlib.sha256()
    try:
        for part in _written(request):
            hashed.update(part)
    except (ValueError, RecursionError):
        return None
    return hashed.hexdigest()[:_DIGEST_HEX]


def _written(request: CallRequest) -> Iterator[bytes]:
    """Yield what a call asks as JSON, which is the same in how many parts it ever comes."""
    asked = request.model_dump(mode="json", include=set(_FIELDS), exclude_defaults=True)
    path, body = _body(request) or ("", {})
    for value in (asked, path, body):
        if tokens(request) < LARGE_TOKENS:
            yield to_json(value, inf_nan_mode="null")
        else:
            yield from parts(value)


def _body(request: CallRequest) -> tuple[str, dict[str, Any]] | None:
    """Return the path and the body of a call in OpenAI's format, as far as it asks something."""
    openai = request.openai
    if openai is None:
        return None
    asked = {name: value for name, value in openai.body.items() if name not in _NOT_ASKED}
    return openai.path, asked
