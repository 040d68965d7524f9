"""Which parts of a call's request and reply are kept. Pure.

What waits to be kept (HeldContent) is no longer than what is kept may be, whatever the size of the
call: the rest of it is not held, and nobody searches it. If personal data is replaced, images and
files are kept as their type and size alone.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hocket.gateway.core.calls.pii import PATTERNS, Masks
from hocket.gateway.core.calls.text_transform import Change, deep
from hocket.gateway.core.content.beginning import Beginning
from hocket.gateway.core.content.data_urls import (
    FILE_DATA,
    file_in_short,
    in_short,
    text_or_file,
)
from hocket.gateway.core.protocols.json_size import held_bytes
from hocket.gateway.core.protocols.openai_api import content_text
from hocket.schemas.messages import Attribution, CallReply, CallRequest
from hocket.schemas.tracing.content import CallContent, Kept

MAX_CHARS = 64_000
"""The most characters kept of a prompt, and of an answer, as JSON."""
_MARGIN_CHARS = 4_096
"""How much more is searched for personal data, and then cut off again: more than the longest value, so
that none is kept in part, and what closes the JSON behind it."""
COMPLETE = ("stop", "tool_calls")
"""Finish reasons of complete answers, which are not kept."""
_ASKED = ("instructions", "messages", "documents", "prompt", "input")
"""Fields of OpenAI bodies that models read."""
_CHOICE = ("index", "finish_reason", "text", "message")
_SAID = ("content", "refusal", "tool_calls", "function_call")
"""What is kept of a choice of an OpenAI reply, and of its message."""


MOST_LOOKED_AT = 2_000_000
"""How many characters of a call's texts are looked at, to show files in short (0.05 s)."""
LEAST_LOOKED_AT = 1_024


@dataclass(frozen=True, slots=True)
class HeldContent:
    """The beginnings of a call's prompt and answer, as they were, until they are kept.

    `prompt_cut`, `answer_cut`: it is not all of it. `held_bytes` is the memory that they take.
    """

    call_id: str
    attribution: Attribution
    model: str
    kept: Kept
    prompt: dict[str, Any]
    prompt_cut: bool
    answer: dict[str, Any]
    answer_cut: bool
    started_at_ms: float
    held_bytes: int


class _Files:
    """Shows files in short. Once MOST_LOOKED_AT characters were looked at, only the beginning of each
    further one is, to see whether it is a file."""

    def __init__(self, most_chars: int) -> None:
        self._most = most_chars
        self._left = MOST_LOOKED_AT

    def text(self, text: str) -> str:
        """Return a text, or a data URL in short."""
        return in_short(text, self._looked_at(text))

    def file(self, text: str) -> str:
        """Return what `file_data` holds in short."""
        return file_in_short(text, self._looked_at(text))

    def _looked_at(self, text: str) -> int:
        most = self._most if self._left > 0 else LEAST_LOOKED_AT
        self._left -= min(len(text), most)
        return most


def held_content(
    request: CallRequest, reply: CallReply, kept: Kept, started_at_ms: float
) -> HeldContent:
    """Return what of a call waits to be kept."""
    most = MAX_CHARS + _MARGIN_CHARS
    if kept == "redacted":
        files = _Files(most)
        asked, said = (Beginning(most, files.text, {FILE_DATA: files.file}) for _ in range(2))
    else:
        asked, said = Beginning(most), Beginning(most)
    prompt, answer = asked.of(asked_of(request)), said.of(_answer(reply))
    return HeldContent(
        call_id=request.call_id,
        attribution=request.attribution,
        model=request.model,
        kept=kept,
        prompt=prompt,
        prompt_cut=asked.is_cut,
        answer=answer,
        answer_cut=said.is_cut,
        started_at_ms=started_at_ms,
        held_bytes=held_bytes((prompt, answer)),
    )


def kept_content(held: HeldContent, is_late: Callable[[], bool] = lambda: False) -> CallContent:
    """Return what is kept of a call; raise MaskingStopped if it `is_late` before all is masked.

    Personal data is masked before anything is cut, and the same value has the same placeholder in
    prompt and answer.
    """
    prompt: Any = held.prompt
    answer: Any = held.answer
    margin = 0
    if held.kept == "redacted":
        masks = Masks(PATTERNS.values(), (), is_late)
        mask = partial(text_or_file, change=masks.mask)
        prompt, answer = _masked(prompt, mask), _masked(answer, mask)
        margin = _MARGIN_CHARS
    prompt, prompt_cut = _bounded(prompt, margin if held.prompt_cut else 0)
    answer, answer_cut = _bounded(answer, margin if held.answer_cut else 0)
    return CallContent(
        call_id=held.call_id,
        attribution=held.attribution,
        model=held.model,
        kept=held.kept,
        prompt=prompt,
        answer=answer,
        is_cut=prompt_cut or answer_cut,
        started_at_ms=held.started_at_ms,
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
        "finish_reason": "" if reply.finish_reason in COMPLETE else reply.finish_reason,
        "error": None if reply.error is None else reply.error.code,
        "error_class": None if reply.error is None else str(reply.error.error_class),
    }
    choices = None if reply.openai is None else reply.openai.get("choices")
    if isinstance(choices, list) and (not reply.text or len(choices) > 1):
        parts["choices"] = [_choice(one) for one in choices if isinstance(one, dict)]
    return _filled(parts, parts)


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    """Return one of several answers, without what its model thought and the probabilities of words."""
    message = choice.get("message")
    said = _filled(message, _SAID) if isinstance(message, dict) else {}
    if isinstance(said.get("content"), list):
        said["content"] = content_text(said["content"])
    return _filled({**choice, "message": said or None}, _CHOICE)


def _filled(parts: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return those of some parts that are not empty."""
    return {name: parts[name] for name in names if parts.get(name) not in ("", None, [])}


def _masked(value: Any, mask: Change) -> Any:
    """Return a value with its texts and its keys masked.

    Keys count too, because structured answers and tool arguments may use people's names as keys.
    """
    if isinstance(value, dict):
        return {mask(name): _masked(part, mask) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(part, mask) for part in value]
    return deep(value, mask)


def _bounded(value: Any, margin: int) -> tuple[Any, bool]:
    """Return a value, or the beginning of its JSON if that is too long; of one that was cut before,
    the last `margin` characters are left out."""
    text = json.dumps(value, ensure_ascii=False)
    most = min(MAX_CHARS, max(len(text) - margin, 0))
    return (value, False) if len(text) <= most else (text[:most], True)
