"""The state of a running template: the names that it was given or has set, its meter, and its text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import StrictUndefined

from hocket.schemas.templates.budget import (
    DEEP_CURE,
    MAX_CALL_DEPTH,
    MAX_TEXT_CHARS,
    SMALLER_CURE,
    Meter,
    Refused,
)
from hocket.schemas.templates.operators import pay_comparison
from hocket.schemas.templates.values import Readable

UNSET = object()


class Frame:
    """One evaluation, or one call of a macro or recursive loop in it, which has its own names."""

    __slots__ = ("chars", "depth", "local", "meter", "out", "scope")

    def __init__(self, scope: Mapping[str, Any], meter: Meter) -> None:
        self.scope = scope
        self.meter = meter
        self.local: dict[int, Any] = {}
        self.out: list[str] = []
        self.chars = 0
        self.depth = 0

    def write(self, text: str) -> None:
        """Append to the text; raise Refused if it becomes too long."""
        self.chars += len(text)
        if self.chars > MAX_TEXT_CHARS:
            raise Refused(f"the text grows beyond {MAX_TEXT_CHARS:,} characters", SMALLER_CURE)
        self.meter.bytes_left -= 64
        self.out.append(text)

    def written(self) -> str:
        self.meter.text(self.chars)
        return "".join(self.out)

    def call(self, levels: int, local: dict[int, Any]) -> "Frame":
        """Return the frame of a call from this one, whose body is `levels` deep. It starts with the
        names that were set where the callee was defined."""
        frame = Frame(self.scope, self.meter)
        frame.depth = self.depth + levels + 1
        if frame.depth > MAX_CALL_DEPTH:
            raise Refused("its macros or recursive loops call each other too deeply", DEEP_CURE)
        self.meter.spend(len(local) + 8)
        self.meter.make(100 * len(local) + 500)
        frame.local = local.copy()
        return frame


Run = Callable[[Frame], None]
"""A compiled statement."""
Value = Callable[[Frame], Any]
"""A compiled expression."""


class Macro(Readable):
    """A macro defined by `{% macro %}` or `{% call %}`; `call` takes the caller's frame and the
    arguments."""

    __slots__ = ("call", "name")

    def __init__(
        self, name: str, call: Callable[[Frame, Sequence[Any], dict[str, Any]], str]
    ) -> None:
        self.name = name
        self.call = call

    def part(self, name: str) -> Any:
        return self.name if name == "name" else super().part(name)


class Loop(Readable):
    """The value of `loop` inside `{% for %}`."""

    __slots__ = ("before", "depth0", "index0", "recurse", "values")

    def __init__(
        self, values: Sequence[Any], depth0: int, recurse: "Callable[[Frame, Any, int], str] | None"
    ) -> None:
        self.values = values
        self.index0 = 0
        self.depth0 = depth0
        self.recurse = recurse
        self.before: Any = UNSET

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return True

    def part(self, name: str) -> Any:
        index0, length = self.index0, len(self.values)
        match name:
            case "index":
                return index0 + 1
            case "index0":
                return index0
            case "first":
                return index0 == 0
            case "last":
                return index0 == length - 1
            case "length":
                return length
            case "revindex":
                return length - index0
            case "revindex0":
                return length - index0 - 1
            case "depth":
                return self.depth0 + 1
            case "depth0":
                return self.depth0
            case "previtem":
                return self.values[index0 - 1] if index0 else _no("there is no previous item")
            case "nextitem":
                after = index0 + 1
                return self.values[after] if after < length else _no("there is no next item")
        return super().part(name)

    def cycle(self, values: Sequence[Any]) -> Any:
        if not values:
            raise TypeError("no items for cycling given")
        return values[self.index0 % len(values)]

    def changed(self, meter: Meter, values: tuple[Any, ...]) -> bool:
        before = self.before
        if before is not UNSET:
            pay_comparison(meter, before, values)
            if before == values:
                return False
        self.before = values
        return True


LOOP_METHODS = frozenset({"changed", "cycle"})


def _no(hint: str) -> StrictUndefined:
    return StrictUndefined(hint)
