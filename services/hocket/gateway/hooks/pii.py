"""The hook `pii`: sends placeholders instead of personal data, and puts the values back into the
answer.

Options: `kinds` (any of EMAIL, IBAN, CARD, IP, PHONE; default: all), `patterns` (additional kinds,
each a regular expression), `unmask` (whether values are put back; default: true). Short texts are
searched at once, long ones in a thread so that other calls can proceed, and so are long answers.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from hocket.gateway.backends.large_work import beside
from hocket.gateway.backends.protocol import Chunk
from hocket.gateway.core.calls.pii import (
    MAX_PATTERNS,
    PATTERNS,
    MaskingStopped,
    Masks,
    Pattern,
    Unmasking,
)
from hocket.gateway.core.calls.text_transform import (
    LEGACY_CALL,
    Change,
    answer_with_texts,
    calls_of,
    is_short,
    is_short_answer,
    texts_of,
    with_texts,
)
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.protocols.openai_api import begins_another
from hocket.gateway.hooks.protocol import Answering, Changed
from hocket.gateway.hooks.streamed_texts import StreamedTexts, first_text
from hocket.schemas.messages import CallRequest, Completion

INLINE_CHARS = 2_048
"""The most characters of a call searched directly on the event loop."""
INLINE_ANSWER_CHARS = 262_144
"""The most characters of an answer in which values are put back directly on the event loop."""
_KIND = re.compile("[A-Z][A-Z0-9]{0,30}")
_OPTIONS = {"kinds", "patterns", "unmask"}


class PiiHook:
    """Masks personal data found by patterns; raises RoutingInvalid for unknown options."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        check_options(options, _OPTIONS)
        self._patterns = patterns_of(options)
        self._unmask = flag_of(options, "unmask")

    async def before(self, request: CallRequest) -> Changed:
        """Return the call with placeholders for personal data."""
        if is_short(request, INLINE_CHARS):
            masks = Masks(self._patterns, texts_of(request))
            masked = with_texts(request, masks.mask)
        else:
            masked, masks = await in_thread(request, self._patterns, lambda masks: masks.mask)
        return changed(masked, masks, unmask=self._unmask)


async def in_thread(
    request: CallRequest, patterns: Iterable[Pattern], change_of: Callable[[Masks], Change]
) -> tuple[CallRequest, Masks]:
    """Return a call with its texts masked in a thread, which stops soon after nobody waits any more,
    and the masks. Their placeholders occur in none of its texts."""
    stopped = threading.Event()

    def masked() -> tuple[CallRequest, Masks]:
        texts = texts_of(request, partial(_check, stopped))
        masks = Masks(patterns, texts, stopped.is_set)
        return with_texts(request, change_of(masks), masks.check), masks

    try:
        return await asyncio.to_thread(masked)
    except asyncio.CancelledError:
        stopped.set()
        raise


def _check(stopped: threading.Event) -> None:
    if stopped.is_set():
        raise MaskingStopped


def changed(request: CallRequest, masks: Masks, *, unmask: bool) -> Changed:
    """Return a masked call and, if `unmask`, the handler that puts the values back."""
    if not (unmask and masks.values):
        return Changed(request)
    return Changed(request, lambda: Restored(masks))


class Restored:
    """Puts the values of one call back into one answer."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._text = Unmasking(masks)
        self._texts = StreamedTexts(masks)
        self._arguments: dict[tuple[Any, ...], Unmasking] = {}
        self._call_ids: dict[tuple[Any, ...], Any] = {}
        """The id of the latest tool call in each place."""

    def chunk(self, chunk: Chunk) -> Chunk:
        """Return a chunk with the text that is certain so far."""
        if chunk.openai is None:
            text, event = self._text.piece(chunk.text), None
        else:
            event = self._event(chunk.openai)
            text = first_text(event)
        return Chunk(text, event, chunk.is_usage, chunk.output_tokens)

    def rest(self) -> str:
        """Return text still held back; backends' own chunks release it with their last one."""
        return self._text.rest()

    async def completion(self, completion: Completion) -> Completion:
        """Return the whole answer with the values put back."""
        masks = self._masks
        restored = partial(answer_with_texts, completion, masks.unmask, masks.unmask_json)
        if is_short_answer(completion, INLINE_ANSWER_CHARS):
            return restored()
        return await beside(restored)

    def _event(self, event: dict[str, Any]) -> dict[str, Any]:
        choices = event.get("choices")
        if not isinstance(choices, list):
            return event
        return {**event, "choices": [self._choice(one) for one in choices]}

    def _choice(self, choice: Any) -> Any:
        if not isinstance(choice, dict):
            return choice
        index, last = choice.get("index"), bool(choice.get("finish_reason"))
        delta = choice.get("delta")
        if isinstance(delta, dict) or (last and delta is None and "text" not in choice):
            return {**choice, "delta": self._delta(delta or {}, index, last)}
        if isinstance(choice.get("text"), str):
            said = self._texts.said((index, "text"), choice["text"], ends=last)
            return {**choice, "text": said}
        return choice

    def _delta(self, delta: dict[str, Any], index: Any, last: bool) -> dict[str, Any]:
        told = {**delta, **self._texts.told(delta, index, last=last)}
        told |= self._legacy_call(delta.get(LEGACY_CALL), index, last)
        given = delta.get("tool_calls")
        calls = [
            told_call
            for call in (given if isinstance(given, list) else ())
            for told_call in self._called(index, call)
        ]
        if last:
            calls += self._ends(index)
        if calls or isinstance(given, list):
            told["tool_calls"] = calls
        return told

    def _called(self, index: Any, call: Any) -> Iterator[Any]:
        """Yield a delta of a tool call, after the end of an earlier call in the same place."""
        if not isinstance(call, dict):
            yield call
            return
        place, function = (index, call.get("index")), call.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if begins_another(self._call_ids.get(place, ""), call.get("id"), name):
            yield from self._end(place)
        self._call_ids[place] = call.get("id") or self._call_ids.get(place, "")
        yield from calls_of([call], partial(self._argument, place))

    def _ends(self, index: Any) -> list[Any]:
        """Return the ends of the tool calls of a choice, as far as they were held back."""
        places = [at for at in self._arguments if at[0] == index and at[1] != LEGACY_CALL]
        return [end for place in places for end in self._end(place)]

    def _end(self, place: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        piece = self._arguments.get(place)
        if piece is not None and (rest := piece.rest()):
            yield {"index": place[1], "function": {"arguments": rest}}

    def _legacy_call(self, call: Any, index: Any, last: bool) -> dict[str, Any]:
        """Return the delta of a call of one of the legacy `functions`, as far as there is any."""
        place, given = (index, LEGACY_CALL), call if isinstance(call, dict) else {}
        text = given.get("arguments")
        said = self._argument(place, text) if isinstance(text, str) else ""
        if last and place in self._arguments:
            said += self._arguments[place].rest()
        return {LEGACY_CALL: {**given, "arguments": said}} if said or given else {}

    def _argument(self, place: tuple[Any, ...], text: str) -> str:
        piece = self._arguments.get(place)
        if piece is None:
            piece = self._arguments[place] = Unmasking(self._masks, in_json=True)
        return piece.piece(text)


def patterns_of(options: Mapping[str, Any]) -> tuple[Pattern, ...]:
    """Return the patterns selected by the options; raise RoutingInvalid."""
    kinds = options.get("kinds", list(PATTERNS))
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= set(PATTERNS):
        raise refused("kinds", "it is not a list of kinds", f"Use: {', '.join(PATTERNS)}.")
    found = [PATTERNS[kind] for kind in PATTERNS if kind in kinds]
    more = options.get("patterns", {})
    if not isinstance(more, dict) or len(more) > MAX_PATTERNS:
        cure = f"Write up to {MAX_PATTERNS} lines `KIND: regular expression`."
        raise refused("patterns", "it is not a mapping of patterns", cure)
    for kind, text in more.items():
        try:
            assert _KIND.fullmatch(str(kind)), "its name is not in capitals"
            found.append(Pattern(str(kind), re.compile(str(text))))
        except (re.error, AssertionError) as error:
            cure = "Write for example `CUSTOMER: 'C-[0-9]{8}'`."
            raise refused(f"patterns.{kind}", str(error), cure) from None
    return tuple(found)


def flag_of(options: Mapping[str, Any], name: str) -> bool:
    """Return a boolean option, true by default; raise RoutingInvalid."""
    value = options.get(name, True)
    if not isinstance(value, bool):
        raise refused(name, "it is neither `true` nor `false`", "Use `true` or `false`.")
    return value


def check_options(options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise RoutingInvalid for options that a hook does not have."""
    for name in set(options) - set(known):
        raise refused(str(name), "there is no such option", f"Use: {', '.join(sorted(known))}.")


def refused(option: str, reason: str, cure: str) -> RoutingInvalid:
    """Return the error for an option."""
    return RoutingInvalid(field=f"hooks: options.{option}", reason=reason, cure=cure)


_restored: type[Answering] = Restored  # checks the protocol statically
