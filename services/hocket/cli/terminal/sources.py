"""Reads what users give on the command line: files, standard input, `key=value`."""

import gzip
import json
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hocket.cli.terminal.errors import FileUnreadable
from hocket.schemas.checks.faults import usual_fault
from hocket.schemas.checks.plain_json import check_plain, parse_json, shown_text
from hocket.schemas.errors import InvalidInput
from hocket.schemas.labels import checked_labels, given_labels, header_of

MAX_FILE_BYTES = 1_048_576
MAX_UNPACKED_BYTES = 64 * 1_048_576
_OWN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""How a shell names its own pipes, as in `<(command)`."""
_GZIP = b"\x1f\x8b"


def read_text(path: str) -> str:
    """Return the text of a file, or of standard input for `-`; raises FileUnreadable."""
    data = _read(path, MAX_FILE_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileUnreadable(path=path, reason="it is not UTF-8 text") from error


def read_unpacked(path: str) -> bytes:
    """Return the bytes of a file, gzipped or not, or of standard input for `-`; raises
    FileUnreadable."""
    data = _read(path, MAX_UNPACKED_BYTES)
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.open(BytesIO(data)) as file:
            unpacked = file.read(MAX_UNPACKED_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileUnreadable(path=path, reason=f"it cannot be decompressed ({error})") from error
    return _bounded(path, unpacked, MAX_UNPACKED_BYTES)


def task_input(given: str | None, pairs: list[str], option: str = "--input") -> dict[str, Any]:
    """Return the input of a task: an object from `option` (JSON, `@file` or `@-`), with `key=value`
    pairs on top, whose values are JSON if they parse as such and text otherwise."""
    value = _object(given, option) if given is not None else {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InvalidInput(
                field="-i", reason=f"`{pair}` is not `key=value`", cure="Write -i question='Why?'."
            )
        value[key] = _loose(text, f"-i {shown_text(key)}")
    return value


def label_header(pairs: list[str], option: str = "--label") -> str | None:
    """Return the labels of `key=value` pairs as a header value, or None if there are none."""
    header = header_of(labels_of(pairs, option))
    return header_of(given_labels(header, option)) if header else None


def labels_of(pairs: list[str], option: str = "--label") -> dict[str, str]:
    """Return the labels of `key=value` pairs; raise InvalidInput, also for two values of one key."""
    return checked_labels((_label(pair, option) for pair in pairs), option)


def _label(pair: str, option: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals:
        reason, cure = f"`{shown_text(pair)}` is not `key=value`", f"Write {option} customer=acme."
        raise InvalidInput(field=option, reason=reason, cure=cure)
    return key, value


def checked_text(kind: Any, text: str, field: str) -> str:
    """Return a text that is of a kind of the API, such as its idempotency keys; otherwise raise
    InvalidInput with the words of the API."""
    try:
        return TypeAdapter[str](kind).validate_python(text)
    except ValidationError as error:
        fault = usual_fault(error.errors()[0], field)
        raise InvalidInput(field=field, reason=fault.reason, cure=fault.cure) from None


def json_value(given: str, field: str) -> Any:
    """Return the value of a JSON text, `@file` or `@-`; raises InvalidInput."""
    return parse_json(read_text(given[1:]) if given.startswith("@") else given, field)


def _read(path: str, limit: int) -> bytes:
    try:
        if path == "-":
            if sys.stdin is None:
                raise FileUnreadable(path=path, reason="standard input is closed")
            return _bounded(path, sys.stdin.buffer.read(limit + 1), limit)
        if Path(path).is_fifo() and not path.startswith(_OWN_PIPES):
            raise FileUnreadable(path=path, reason="it is a named pipe, which may never end")
        with Path(path).open("rb") as file:
            return _bounded(path, file.read(limit + 1), limit)
    except OSError as error:
        raise FileUnreadable(path=path, reason=error.strerror) from error


def _bounded(path: str, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise FileUnreadable(path=path, reason=f"it has more than {limit} bytes")
    return data


def _object(given: str, option: str) -> dict[str, Any]:
    value = json_value(given, option)
    if not isinstance(value, dict):
        raise InvalidInput(
            field=option,
            reason=f"it is a {type(value).__name__}, not an object",
            cure='Write one JSON object: \'{"question": "Why?"}\'.',
        )
    return value


def _loose(text: str, field: str) -> Any:
    """Return the value of JSON text, and other text as it is; raises InvalidInput for JSON that cannot
    be transported."""
    try:
        json.loads(text)
    except RecursionError:
        pass
    except ValueError as error:
        if "integer string conversion" not in str(error):
            check_plain(text, field)
            return text
    return parse_json(text, field)
