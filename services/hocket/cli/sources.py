"""Reads what users give on the command line: files, standard input, `key=value`."""

import json
import sys
from pathlib import Path
from typing import Any

from hocket.cli.errors import FileUnreadable
from hocket.schemas.errors import InvalidInput
from hocket.schemas.plain_json import parse_json

MAX_FILE_BYTES = 1_048_576


def read_text(path: str) -> str:
    """Return the text of a file, `-` for standard input; raises FileUnreadable."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise FileUnreadable(path=path, reason=error.strerror) from error
    except UnicodeDecodeError as error:
        raise FileUnreadable(path=path, reason="it is not UTF-8 text") from error
    if len(data) > MAX_FILE_BYTES:
        raise FileUnreadable(path=path, reason=f"it has more than {MAX_FILE_BYTES} bytes")
    return text


def task_input(given: str | None, pairs: list[str]) -> dict[str, Any]:
    """Return the input of a task: an object from `--input` (JSON, `@file` or `@-`), with `key=value`
    pairs on top, whose values are JSON where they parse as such and text otherwise."""
    value = _object(given) if given is not None else {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InvalidInput(
                field="-i", reason=f"`{pair}` is not `key=value`", cure="Write -i question='Why?'."
            )
        value[key] = _loose(text)
    return value


def _object(given: str) -> dict[str, Any]:
    value = parse_json(read_text(given[1:]) if given.startswith("@") else given, "--input")
    if not isinstance(value, dict):
        raise InvalidInput(
            field="--input",
            reason=f"it is a {type(value).__name__}, not an object",
            cure='Write one JSON object: \'{"question": "Why?"}\'.',
        )
    return value


def _loose(text: str) -> Any:
    try:
        json.loads(text)
    except ValueError:
        return text
    return parse_json(text, "-i")
