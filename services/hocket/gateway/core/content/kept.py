"""Which parts of a call's request and reply are kept. Pure."""

import json
from typing import Any

from hocket.gateway.core.calls.pii import PATTERNS, Masks
from hocket.gateway.core.calls.text_transform import Change, deep
from hocket.schemas.messages import CallReply, CallRequest
from hocket.schemas.tracing.content import CallContent, Kept

MAX_CHARS = 64_000
"""The most characters kept of a prompt, and of an answer, as JSON."""
_ASKED = ("instructions", "messages", "prompt", "input")
"""Fields of OpenAI bodies that models read."""


def kept_content(
    request: CallRequest, reply: CallReply, kept: Kept, started_at_ms: float
) -> CallContent:
    """Return what is kept of a call.

    Personal data is masked before anything is cut, and the same value has the same placeholder in
    prompt and answer.
    """
    prompt, answer = asked_of(request), _answer(reply)
    if kept == "redacted":
        masks = Masks(PATTERNS.values(), ())
        prompt, answer = _masked(prompt, masks.mask), _masked(answer, masks.mask)
    prompt, prompt_cut = _bounded(prompt)
    answer, answer_cut = _bounded(answer)
    return CallContent(
        call_id=request.call_id,
        attribution=request.attribution,
        model=request.model,
        kept=kept,
        prompt=prompt,
        answer=answer,
        is_cut=prompt_cut or answer_cut,
        started_at_ms=started_at_ms,
    )


def asked_of(request: CallRequest) -> dict[str, Any]:
    """Return the prompt of a call: `messages`, `documents`, `context`, `embed`, or the fields of an
    OpenAI body that models read."""
    if request.openai is not None:
        body = request.openai.body
        return {name: body[name] for name in _ASKED if name in body}
    parts = {
        "messages": [m.model_dump(mode="json", exclude_defaults=True) for m in request.messages],
        "documents": [d.model_dump(mode="json", exclude_defaults=True) for d in request.documents],
        "context": dict(request.context),
        "embed": list(request.embed),
    }
    return {name: part for name, part in parts.items() if part}


def _answer(reply: CallReply) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "text": reply.text,
        "data": reply.data,
        "tool_calls": list(reply.tool_calls),
        "error": None if reply.error is None else reply.error.code,
        "error_class": None if reply.error is None else str(reply.error.error_class),
    }
    if not reply.text and reply.openai is not None and "choices" in reply.openai:
        parts["choices"] = reply.openai["choices"]
    return {name: part for name, part in parts.items() if part not in ("", None, [])}


def _masked(value: Any, mask: Change) -> Any:
    """Return a value with its texts and its keys masked.

    Keys count too, because structured answers and tool arguments may use people's names as keys.
    """
    if isinstance(value, dict):
        return {mask(name): _masked(part, mask) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(part, mask) for part in value]
    return deep(value, mask)


def _bounded(value: Any) -> tuple[Any, bool]:
    text = json.dumps(value, ensure_ascii=False)
    return (value, False) if len(text) <= MAX_CHARS else (text[:MAX_CHARS], True)
