"""Large values by reference: which parts of an output are moved to blobs, and which parts of an input
are loaded from them. Pure; the shell around it stores and loads.

A reference is `{"$blob": hash, "size": bytes, "type": "text" | "json"}`. Texts are moved first, largest
first, then whole branches, so that expressions can still read as much as possible.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import from_json, to_json

from hocket.schemas.checks.large_values import MARK, is_reference
from hocket.schemas.checks.plain_json import shown_place, shown_text
from hocket.workers.errors import BlobUnresolved

MIN_PART_BYTES = 16 * 1024
"""Smaller parts are not moved."""
REFERENCE_BYTES = 150
MAX_SHOWN_CHARS = 80
MAX_RESOLVED_BYTES = 64 * 1024 * 1024
"""The most bytes that the blobs of one input may hold in total."""
MAX_RESOLVED_PARTS = 1_000_000
"""The most lists and dicts in the JSON of those blobs, with five other values counted as one:
`[[],[],...]` is 20 times as large once it is parsed."""

JSON_FACTOR = 4

Path = tuple[str | int, ...]
_NUMBERS = frozenset({int, float, bool, type(None)})
Kind = Literal["text", "json"]


@dataclass(frozen=True)
class Part:
    """A part of a value to be moved to a blob: its path and its bytes."""

    path: Path
    data: bytes
    kind: Kind


@dataclass(frozen=True)
class Reference:
    """A blob that a value refers to, and the place of the reference in the value."""

    path: Path
    blob: str
    size: int
    kind: Kind | None


def reference(blob: str, size: int, kind: Kind) -> dict[str, Any]:
    """Return the JSON value that refers to a blob."""
    return {MARK: blob, "size": size, "type": kind}


def large_parts(value: Any, excess_bytes: int) -> list[Part]:
    """Return the parts of a JSON value that must move to blobs so that it shrinks by `excess_bytes`.

    If texts are not enough, whole branches below the top level are moved; if they are not enough
    either, the value itself is.
    """
    texts = [
        Part(path, text.encode(), "text")
        for path, text in _texts(value, ())
        if len(text) * 4 >= MIN_PART_BYTES and len(text.encode()) >= MIN_PART_BYTES
    ]
    for candidates in (texts, _branches(value)):
        chosen = _largest(candidates, excess_bytes)
        if chosen:
            return chosen
    return [Part((), to_json(value), "json")]


def find_references(
    value: Any, path: Path = (), *, besides: Collection[Path] = (), may_be_data: bool = False
) -> Iterator[Reference]:
    """Yield every reference inside a JSON value, except those at or below the paths `besides`. What has
    no form of a reference raises BlobUnresolved, unless it `may_be_data`."""
    if path in besides:
        return
    items: Iterable[tuple[str | int, Any]]
    if isinstance(value, Mapping):
        if is_reference(value):
            if not may_be_data or _has_form(value):
                yield _as_reference(value, path)
            return
        items = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(item, dict | list):
            below = (*path, key)
            yield from find_references(item, below, besides=besides, may_be_data=may_be_data)


def replace(value: Any, replacements: Mapping[Path, Any]) -> Any:
    """Return the value with the parts at the given paths replaced; the rest is shared, not copied."""
    on_the_way = {path[:depth] for path in replacements for depth in range(len(path))}

    def walk(part: Any, path: Path) -> Any:
        if path in replacements:
            return replacements[path]
        if path not in on_the_way:
            return part
        if isinstance(part, Mapping):
            return {key: walk(item, (*path, key)) for key, item in part.items()}
        return [walk(item, (*path, index)) for index, item in enumerate(part)]

    return walk(value, ())


def content(found: Reference, data: bytes) -> Any:
    """Return the value that a blob's bytes hold; a blob without a type is text."""
    try:
        return from_json(data) if found.kind == "json" else data.decode()
    except ValueError as error:
        raise unresolved(found, f"it is not {found.kind}: {error}") from None


def count_parts(found: Reference, data: bytes) -> int:
    """Return an upper bound of what MAX_RESOLVED_PARTS counts, cheaply and before parsing."""
    if found.kind != "json":
        return 1
    return data.count(b"[") + data.count(b"{") + data.count(b",") // 5


def check_parts(found: Reference, parts: int) -> None:
    """Raise BlobUnresolved if the JSON of one input's blobs, up to this one, has too many parts."""
    if parts > MAX_RESOLVED_PARTS:
        raise unresolved(
            found,
            f"the JSON of the input's blobs has more than {MAX_RESOLVED_PARTS} lists and dicts",
        )


def check_resolved_size(found: list[Reference], loaded_bytes: int = 0) -> None:
    """Raise BlobUnresolved if the blobs of one input, of which some are loaded, are too large in
    total."""
    total = loaded_bytes + sum(item.size for item in found)
    if total > MAX_RESOLVED_BYTES:
        largest = max(found, key=lambda item: item.size)
        raise unresolved(
            largest, f"the input's blobs have {total} bytes; the limit is {MAX_RESOLVED_BYTES}"
        )


def held_bytes(found: list[Reference]) -> int:
    """Return the bytes that the blobs of one input take in memory; JSON takes several times its size."""
    return sum(item.size * (JSON_FACTOR if item.kind == "json" else 1) for item in found)


def unresolved(found: Reference, reason: str) -> BlobUnresolved:
    """Return the error for a reference, naming its place in the input."""
    return BlobUnresolved(
        field=shown_place("input", *found.path),
        blob=shown_text(found.blob, MAX_SHOWN_CHARS),
        reason=reason,
    )


def _has_form(value: Mapping[str, Any]) -> bool:
    size = value.get("size")
    return isinstance(size, int) and size >= 0 and value.get("type") in ("text", "json", None)


def _as_reference(value: Mapping[str, Any], path: Path) -> Reference:
    if not _has_form(value):
        found = Reference(path, value[MARK], 0, None)
        raise unresolved(found, "its reference needs `size` and `type`")
    return Reference(path, value[MARK], value["size"], value.get("type"))


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if type(item) not in _NUMBERS:
                yield from _texts(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if type(item) not in _NUMBERS:  # lists of millions of numbers are common
                yield from _texts(item, (*path, index))


def _branches(value: Any) -> list[Part]:
    if isinstance(value, Mapping):
        items: list[tuple[str | int, Any]] = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    else:
        return []
    parts = [Part((key,), to_json(item), "json") for key, item in items]
    return [part for part in parts if len(part.data) >= MIN_PART_BYTES]


def _largest(candidates: list[Part], excess_bytes: int) -> list[Part]:
    """Return the fewest parts, largest first, that cover the excess; none if all are not enough."""
    chosen: list[Part] = []
    for part in sorted(candidates, key=lambda part: len(part.data), reverse=True):
        chosen.append(part)
        excess_bytes -= len(part.data) - REFERENCE_BYTES
        if excess_bytes <= 0:
            return chosen
    return []
