"""The beginning of a JSON value, so that no more of a call is held and searched than is kept. Pure."""

from collections.abc import Callable, Mapping
from typing import Any


class Beginning:
    """Takes the beginning of a value of up to `most_chars` characters, in the order of its JSON.

    What JSON puts around texts hardly counts, so as JSON it may be longer, and is never shorter if
    anything `is_cut`. Names of objects count, and may be cut as well. Texts are taken as `shown`
    returns them, or, under the name of a field, as the function of that field does (`of_field`).
    """

    def __init__(
        self,
        most_chars: int,
        shown: Callable[[str], str] = str,
        of_field: Mapping[str, Callable[[str], str]] | None = None,
    ) -> None:
        self._left = most_chars
        self._shown = shown
        self._of_field = of_field or {}
        self.is_cut = False

    def of(self, value: Any) -> Any:
        """Return as much of a value as there is room for."""
        if isinstance(value, str):
            return self._text(self._shown(value))
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return self._list(value)
        self._left -= 1 + value.bit_length() // 4 if isinstance(value, int) else 1
        return value

    def _text(self, text: str) -> str:
        left = max(self._left, 0)
        self._left -= len(text)
        if len(text) <= left:
            return text
        self.is_cut = True
        return text[:left]

    def _object(self, value: dict[Any, Any]) -> dict[Any, Any]:
        begun: dict[Any, Any] = {}
        for name, one in value.items():
            if not self._room():
                break
            short = self.of(name)
            shown = self._of_field.get(name) if isinstance(one, str) else None
            begun[short] = self.of(one) if shown is None else self._text(shown(one))
        return begun

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        begun: list[Any] = []
        for one in value:
            if not self._room():
                break
            begun.append(self.of(one))
        return begun

    def _room(self) -> bool:
        """Tell whether there is room for another item, and count what separates it from others."""
        self.is_cut |= self._left <= 0
        self._left -= 1
        return not self.is_cut
