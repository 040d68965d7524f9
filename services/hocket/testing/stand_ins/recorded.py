"""Gives the answers of a recording to the calls of a play that ask the same."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from hocket.gateway.core.content.kept import asked_of
from hocket.schemas.messages import CallRequest
from hocket.testing.errors import AnswerNotRecorded, PromptChanged
from hocket.testing.recording import RecordedCall, read_recording

SHOWN_CHARS = 300
"""The most characters shown of each side of a difference."""
_BEFORE = 40


class RecordedAnswers:
    """The recorded answers of one play, each given once; with `check_prompts`, only to the same
    prompt."""

    def __init__(self, file: Path, calls: Sequence[RecordedCall], *, check_prompts: bool) -> None:
        self._file = file
        self._calls = calls
        self._check_prompts = check_prompts
        self._left: dict[tuple[str, str, str], list[RecordedCall]] = {}
        self._had: dict[tuple[str, str, str], int] = {}
        for call in calls:
            key = (call.pipeline, call.step, call.model)
            self._left.setdefault(key, []).append(call)
            self._had[key] = self._had.get(key, 0) + 1

    @classmethod
    def read(cls, file: Path, *, check_prompts: bool) -> Self:
        """Return the answers in a file. Raises RecordingInvalid."""
        return cls(file, read_recording(file).calls, check_prompts=check_prompts)

    def anew(self) -> Self:
        """Return all the answers again, for another play."""
        return type(self)(self._file, self._calls, check_prompts=self._check_prompts)

    def take(self, request: CallRequest) -> RecordedCall:
        """Return the answer to a call: the first of its step's recorded calls of the same model whose
        prompt is the same or unknown. Raises AnswerNotRecorded or PromptChanged."""
        who = request.attribution
        key = (who.pipeline or "", who.step or "", request.model)
        left = self._left.get(key)
        if not left:
            raise AnswerNotRecorded(
                step=who.step, model=request.model, file=self._file, reason=self._missing(key)
            )
        asked = plain(asked_of(request))
        for place, call in enumerate(left):
            if call.prompt is None or not self._check_prompts or plain(call.prompt) == asked:
                return left.pop(place)
        was, now = _difference(plain(left[0].prompt), asked)
        raise PromptChanged(step=who.step, model=request.model, file=self._file, was=was, now=now)

    def _missing(self, key: tuple[str, str, str]) -> str:
        """Describe what is recorded instead of the missing answer."""
        if key in self._had:
            return f"it has {self._had[key]} for it, and the play has used them all"
        pipeline, step, _ = key
        models = sorted({other[2] for other in self._had if other[:2] == (pipeline, step)})
        if models:
            return f"there this step asked {', '.join(models)}"
        steps = [f"{other[1]} ({other[2]})" for other in self._had if other[0] == pipeline]
        return f"there these steps of `{pipeline}` asked: {', '.join(steps[:20]) or '(none)'}"


def plain(value: Any) -> Any:
    """Return a value as the store of content returns it."""
    return json.loads(json.dumps(value).replace("\\u0000", "\\ufffd"))


def _difference(was: Any, now: Any, place: str = "") -> tuple[str, str]:
    """Return the first difference: both parts, each with its place."""
    for name, one, other in _parts(was, now):
        if one != other:
            return _difference(one, other, f"{place}.{name}".lstrip("."))
    return _shown(was, now, place), _shown(now, was, place)


def _parts(was: Any, now: Any) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(was, dict) and isinstance(now, dict):
        for name in (*was, *(name for name in now if name not in was)):
            yield name, was.get(name), now.get(name)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        yield from zip(range(len(was)), was, now, strict=True)


def _shown(value: Any, other: Any, place: str) -> str:
    if isinstance(value, str) and isinstance(other, str):
        pairs = zip(value, other, strict=False)
        begin = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(value), len(other)))
        begin = max(0, begin - _BEFORE)
        value = ("..." if begin else "") + value[begin:]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{place}: {text[:SHOWN_CHARS]}" if place else text[:SHOWN_CHARS]
