"""Where and how a value breaks a schema, in few words."""

from collections.abc import Callable, Mapping
from typing import Any

MAX_SHOWN = 200


class Fault:
    """One violation. Its message is built on demand, and its path is extended on the way up."""

    __slots__ = ("_say", "reversed_path")

    def __init__(self, say: Callable[[], str]) -> None:
        self._say = say
        self.reversed_path: list[str | int] = []

    def below(self, part: str | int) -> "Fault":
        self.reversed_path.append(part)
        return self

    @property
    def path(self) -> tuple[str | int, ...]:
        return tuple(reversed(self.reversed_path))

    @property
    def message(self) -> str:
        return self._say()


def shown(value: Any, room: int = MAX_SHOWN) -> str:
    """Return a value as Python writes it, shortened if it is long."""
    text = _shown(value, room)
    return text if len(text) <= room else text[: room - 3] + "..."


def _shown(value: Any, room: int) -> str:
    if isinstance(value, str):
        return repr(value[:room])
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() < 2 * room else "a very long number"
    if isinstance(value, Mapping):
        parts: list[str] = []
        for key, item in value.items():
            if room <= 0:
                break
            parts.append(f"{_shown(key, room)}: {_shown(item, room)}")
            room -= len(parts[-1])
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list | tuple):
        parts = []
        for item in value:
            if room <= 0:
                break
            parts.append(_shown(item, room))
            room -= len(parts[-1])
        return "[" + ", ".join(parts) + "]"
    return repr(value)
