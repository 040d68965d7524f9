"""Results of an agent's tools: those of one round are cut where they are too large for one message,
before the next round gets them. Pure, and the same for the same results, as a replay needs it.

What is stored apart of a result is only known to the worker, which loads it. So a result with references
to such values stays data, of which only the beginning is kept.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic_core import to_json

from hocket.schemas.checks.large_values import FIELDS, MARK, is_reference

MAX_RESULTS_BYTES = 393_216
"""The limit on the JSON of all results of a round. A model gets no more anyway, because a conversation
has at most as much."""
LEAST_CHARS = 100
MAX_ERROR_CHARS = 2_000
NOTE_CHARS = 40
"""Room for what is said of a cut."""
MAX_HASH_CHARS = 200
MAX_BLOB_BYTES = 2**53
_MARKED = to_json(MARK) + b":"
_BYTES_PER_CHAR = 4
"""The most bytes of a character."""


def fitted(
    results: Mapping[str, Mapping[str, Any]], most_chars: int, remote: Collection[str]
) -> dict[str, Mapping[str, Any]]:
    """Return results that fit into a message. If they are too large, those longer than `most_chars` are
    cut, which is all that a model gets of each; and if need be, the longest further. `remote` are those
    of tools of MCP servers, whose text says enough."""
    sizes = {name: _size(result) for name, result in results.items()}
    fitting, size_bytes = dict(results), sum(sizes.values())
    texts: dict[str, str | None] = {}
    for most in _limits(most_chars):
        if size_bytes <= MAX_RESULTS_BYTES:
            break
        size_bytes = 0
        for name, result in results.items():
            cut = result
            if sizes[name] > most:
                if name not in texts:
                    texts[name] = _text(result["output"], name in remote)
                cut = _shorter(result, texts[name], most)
            fitting[name] = cut
            size_bytes += sizes[name] if cut is result else _size(cut)
            if size_bytes > MAX_RESULTS_BYTES and most >= 2 * LEAST_CHARS:
                break  # the next limit is needed, whatever the others are
    return fitting


def _limits(most_chars: int) -> Iterator[int]:
    while most_chars >= LEAST_CHARS:
        yield most_chars
        most_chars //= 2


def _shorter(result: Mapping[str, Any], text: str | None, most_chars: int) -> Mapping[str, Any]:
    """Return a result with its beginning only; `text` is its output as text, unless it stays data."""
    if result["error"] is not None:
        return {"output": None, "error": _brief(result["error"])}
    if text is None:
        return {"output": _Beginning(most_chars).of(result["output"]), "error": None}
    if len(text) <= most_chars:
        return result
    return {"output": _cut(text, most_chars), "error": None}


def _size(value: Any) -> int:
    return len(to_json(value))


def _brief(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error with only what a model gets of it."""
    message = str(error.get("message") or "")
    return {"code": error.get("code"), "message": message[:MAX_ERROR_CHARS]}


def _text(output: Any, is_remote: bool) -> str | None:
    """Return an output as text, or None if it holds references. For a tool of an MCP server this is its
    own text, unless that is only a small part: besides it, there is often the same as data."""
    if isinstance(output, str):
        return output
    whole = to_json(output)
    text = output.get("text") if is_remote and isinstance(output, Mapping) else None
    if isinstance(text, str) and 3 * len(text) >= len(whole.decode()):
        return text
    return None if _MARKED in whole else whole.decode()


def _cut(text: str, most_chars: int) -> str:
    kept = text[: max(most_chars - NOTE_CHARS, 0)]
    return f"{kept}\n(cut: it has {len(text)} characters)"


class _Beginning:
    """Copies as much of data as a model gets of its JSON, and says where it ends. References are kept as
    a whole, and counted with what is loaded in their place."""

    def __init__(self, most_chars: int) -> None:
        self._left = most_chars

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            left, self._left = self._left, self._left - len(value) - 2
            return value if len(value) <= left else _cut(value, left)
        if _is_stored(value):
            self._left -= max(_size(value), value["size"] // _BYTES_PER_CHAR)
            return value
        if isinstance(value, Mapping):
            return self._fields(value)
        if isinstance(value, list):
            return self._items(value)
        self._left -= _size(value)
        return value

    def _fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name, value in fields.items():
            self._left -= len(name) + 4
            if self._left <= 0:
                kept["(cut)"] = f"it has {len(fields)} fields"
                break
            kept[name] = self.of(value)
        return kept

    def _items(self, items: list[Any]) -> list[Any]:
        kept: list[Any] = []
        for item in items:
            self._left -= 2
            if self._left <= 0:
                kept.append(f"(cut: it has {len(items)} items)")
                break
            kept.append(self.of(item))
        return kept


def _is_stored(value: Any) -> bool:
    """Tell whether a value is a reference in the form that workers write: others stay data."""
    if not is_reference(value) or value.keys() != {MARK, *FIELDS}:
        return False
    size, kind = value["size"], value["type"]
    is_size = type(size) is int and 0 <= size <= MAX_BLOB_BYTES
    return is_size and kind in ("text", "json") and len(value[MARK]) <= MAX_HASH_CHARS
