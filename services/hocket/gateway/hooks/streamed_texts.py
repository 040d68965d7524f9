"""The texts in the deltas of a streamed answer, with the values put back.

A model's reasoning comes under other names than what it says, or (Mistral's) in parts of the content.
Each text is put together by itself, because a placeholder may be cut anywhere. What is held back of
reasoning is released where the model goes on to something else, so that it is not told later.
"""

from collections.abc import Mapping
from typing import Any

from hocket.gateway.core.calls.pii import Masks, Unmasking
from hocket.gateway.core.calls.text_transform import REASONING, TEXTS
from hocket.gateway.core.protocols.openai_api import content_text

_SPEAKS = ("content", "refusal", "tool_calls")
_Place = tuple[Any, str]
"""The index of a choice, and which of its texts it is."""


class StreamedTexts:
    """Puts values back into the texts of one stream."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._held: dict[_Place, Unmasking] = {}

    def said(self, place: _Place, text: str, *, ends: bool) -> str:
        """Return what can be told of a text after one more piece; all of it, if it ends here."""
        piece = self._held.get(place)
        if piece is None:
            if not text:
                return ""
            piece = self._held[place] = Unmasking(self._masks)
        return piece.piece(text) + (piece.rest() if ends else "")

    def told(self, delta: Mapping[str, Any], index: Any, *, last: bool) -> dict[str, Any]:
        """Return the texts of a choice's delta, and what was held back if it is released now."""
        thinks = any(delta.get(name) for name in REASONING) or _thinks(delta.get("content"))
        ends = last or (not thinks and any(delta.get(name) for name in _SPEAKS))
        told: dict[str, Any] = {}
        for name in TEXTS:
            given = delta.get(name)
            text = self._text_of(given, (index, name), ends=ends if name in REASONING else last)
            if text or isinstance(given, str | list):
                told[name] = text
        if ends and (thought := self.said((index, "thinking"), "", ends=True)):
            told["content"] = [_thinking(thought), *_as_parts(told.get("content"))]
        return told

    def _text_of(self, given: Any, place: _Place, *, ends: bool) -> Any:
        """Return what can be told of one text: a string, or parts if it came in parts."""
        if not isinstance(given, list):
            return self.said(place, given if isinstance(given, str) else "", ends=ends)
        parts = self._parts(given, place, place[0])
        held = self.said(place, "", ends=ends)
        return [*parts, _text(held)] if held else parts

    def _parts(self, parts: list[Any], place: _Place, index: Any) -> list[Any]:
        return [
            self._part(part, place, index) if isinstance(part, dict) else part for part in parts
        ]

    def _part(self, part: dict[str, Any], place: _Place, index: Any) -> dict[str, Any]:
        told = dict(part)
        if isinstance(part.get("text"), str):
            told["text"] = self.said(place, part["text"], ends=False)
        thought = part.get("thinking")
        if isinstance(thought, str):
            told["thinking"] = self.said((index, "thinking"), thought, ends=False)
        elif isinstance(thought, list):
            told["thinking"] = self._parts(thought, (index, "thinking"), index)
        return told


def first_text(event: Mapping[str, Any]) -> str:
    """Return what an event says for callers who get the text of the first choice alone."""
    choices = event.get("choices")
    first = [
        choice
        for choice in (choices if isinstance(choices, list) else ())
        if isinstance(choice, dict) and not choice.get("index")
    ]
    return "".join(map(_said, first))


def _said(choice: Mapping[str, Any]) -> str:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return content_text(choice.get("text"))
    return content_text(delta.get("content")) or content_text(delta.get("refusal"))


def _thinks(content: Any) -> bool:
    """Tell whether a content consists of parts that hold thinking."""
    parts = content if isinstance(content, list) else []
    return any(isinstance(part, dict) and part.get("thinking") for part in parts)


def _as_parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [_text(content)] if content else []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [_text(text)]}
