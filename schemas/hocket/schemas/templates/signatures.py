"""The parameters of a macro, and how a call's arguments become the values of its names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import StrictUndefined

from hocket.schemas.templates.frames import Frame, Value


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a macro: `params` with the slots that they are bound to, and `extra` with those
    of `varargs`, `kwargs` and `caller`. The ones that the body reads (`read`) take the arguments that no
    parameter takes."""

    macro: str
    params: Sequence[tuple[str, int]]
    defaults: Sequence[Value | None]
    extra: Mapping[str, int]
    read: frozenset[str]

    def bind(self, frame: Frame, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        """Set the names in a macro's frame; raise TypeError for arguments that it does not take."""
        named = dict(given)
        if len(args) > len(self.params) and "varargs" not in self.read:
            raise TypeError(f"macro `{self.macro}` takes at most {len(self.params)} argument(s)")
        self._bind_params(frame, args, named)
        if "caller" in self.extra:
            nobody = StrictUndefined("No caller defined", name="caller")
            frame.local[self.extra["caller"]] = named.pop("caller", nobody)
        if named and "kwargs" not in self.read:
            raise TypeError(f"macro `{self.macro}` takes no argument `{next(iter(named))}`")
        if "varargs" in self.extra:
            frame.local[self.extra["varargs"]] = tuple(args[len(self.params) :])
        if "kwargs" in self.extra:
            frame.local[self.extra["kwargs"]] = named

    def _bind_params(self, frame: Frame, args: Sequence[Any], named: dict[str, Any]) -> None:
        for place, (param, slot) in enumerate(self.params):
            if place < len(args):
                if param in named:
                    raise TypeError(f"macro `{self.macro}` got two values for `{param}`")
                frame.local[slot] = args[place]
            elif param in named:
                frame.local[slot] = named.pop(param)
            else:
                frame.local[slot] = self._default(frame, place, param)

    def _default(self, frame: Frame, place: int, param: str) -> Any:
        default = self.defaults[place]
        if default is None:
            return StrictUndefined(f"parameter {param!r} was not provided", name=param)
        return default(frame)
