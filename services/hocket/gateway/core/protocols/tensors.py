"""Converts nested lists to tensors of the KServe v2 protocol and back.

Tensor data is little-endian and row-major; an element of BYTES is its length in four bytes,
followed by the bytes. BF16 is not supported, because Python has no such number.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

from hocket.schemas.errors import ErrorClass, HocketError

BYTES = "BYTES"
MAX_RANK = 16
MAX_LISTS = 2_000_000
"""The most lists that a tensor may become: a shape names any number of empty ones in a few bytes."""
_CODES = {
    "BOOL": "?",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
FLOATS = frozenset({"FP16", "FP32", "FP64"})


class TensorInvalid(HocketError):
    """Tensor `{name}` is not valid: {reason}."""

    code = "tensor_invalid"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array as sent over the wire."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: bytes


def encoded(name: str, datatype: str, value: Any, shape: Sequence[int] | None = None) -> Tensor:
    """Return a nested list (or a flat one with its `shape`) as a tensor, or raise TensorInvalid."""
    found = _shape(name, value)
    flat = list(_flattened(name, value, found))
    if shape is not None:
        if any(size < 0 for size in shape) or math.prod(shape) != len(flat):
            raise TensorInvalid(name=name, reason=f"{len(flat)} values do not fill {list(shape)}")
        found = tuple(shape)
    if datatype == BYTES:
        return Tensor(name, datatype, found, b"".join(_packed(name, item) for item in flat))
    try:
        content = struct.pack(f"<{len(flat)}{_code(name, datatype)}", *flat)
    except (struct.error, OverflowError, TypeError) as error:
        raise TensorInvalid(name=name, reason=f"not {datatype}: {error}") from error
    return Tensor(name, datatype, found, content)


def decoded(tensor: Tensor) -> Any:
    """Return a tensor as nested lists; BYTES become text,
    with U+FFFD for anything that is not UTF-8."""
    if len(tensor.shape) > MAX_RANK:
        raise TensorInvalid(name=tensor.name, reason=f"it is nested deeper than {MAX_RANK}")
    flat = _unpacked(tensor) if tensor.datatype == BYTES else _numbers(tensor)
    if len(flat) != math.prod(tensor.shape):
        reason = f"{len(flat)} values do not fill {list(tensor.shape)}"
        raise TensorInvalid(name=tensor.name, reason=reason)
    if min(tensor.shape, default=0) < 0 or _lists(tensor.shape) > MAX_LISTS:
        reason = f"its shape has a size below 0, or needs more than {MAX_LISTS} lists"
        raise TensorInvalid(name=tensor.name, reason=reason)
    return _nested(flat, tensor.shape)


def _lists(shape: Sequence[int]) -> int:
    """Return how many lists a tensor of a shape becomes."""
    return sum(accumulate(shape[:-1], mul, initial=1))


def _code(name: str, datatype: str) -> str:
    code = _CODES.get(datatype)
    if code is None:
        raise TensorInvalid(name=name, reason=f"its datatype {datatype} is not supported")
    return code


def _shape(name: str, value: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(value, list | tuple):
        shape.append(len(value))
        if len(shape) > MAX_RANK:
            raise TensorInvalid(name=name, reason=f"it is nested deeper than {MAX_RANK}")
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _flattened(name: str, value: Any, shape: Sequence[int]) -> Iterator[Any]:
    if not shape:
        if isinstance(value, list | tuple):
            raise TensorInvalid(name=name, reason="its rows have different depths")
        yield value
        return
    if not isinstance(value, list | tuple) or len(value) != shape[0]:
        raise TensorInvalid(name=name, reason="its rows have different lengths")
    for item in value:
        yield from _flattened(name, item, shape[1:])


def _packed(name: str, item: Any) -> bytes:
    if isinstance(item, str):
        item = item.encode("utf-8", "replace")
    if not isinstance(item, bytes):
        raise TensorInvalid(name=name, reason=f"not text: {item!r}")
    return struct.pack("<I", len(item)) + item


def _unpacked(tensor: Tensor) -> list[str]:
    items: list[str] = []
    at, content = 0, tensor.content
    while at < len(content):
        start = at + 4
        size = int.from_bytes(content[at:start], "little")
        at = start + size
        if at > len(content):
            raise TensorInvalid(name=tensor.name, reason="it ends inside an element")
        items.append(content[start:at].decode("utf-8", "replace"))
    return items


def _numbers(tensor: Tensor) -> Sequence[Any]:
    code = _code(tensor.name, tensor.datatype)
    count, left = divmod(len(tensor.content), struct.calcsize(f"<{code}"))
    if left:
        raise TensorInvalid(name=tensor.name, reason="it ends inside an element")
    return struct.unpack(f"<{count}{code}", tensor.content)


def _nested(flat: Sequence[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return list(flat)
    size = math.prod(shape[1:])
    return [_nested(flat[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]
