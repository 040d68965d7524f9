"""Reads the text of a pipeline file: YAML, or JSON, which is YAML too.

Narrower than YAML 1.1 where that surprises: `on:` is a key and not `true`, dates stay text, a key
given twice is refused, and aliases cannot make a small file into a huge value.
"""

import re
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import yaml

from hocket.schemas.errors import InvalidInput
from hocket.schemas.plain_json import check_plain, parse_json

MAX_DOCUMENT_BYTES = 1_000_000
MAX_VALUES = 100_000
"""Values in a document, those that aliases repeat counted each time."""


def parse_document(text: str | bytes) -> Any:
    """Return the JSON value of a pipeline file, or raise InvalidInput with the line and the cure."""
    if len(text) > MAX_DOCUMENT_BYTES:
        raise InvalidInput(
            field="(document)",
            reason=f"it has more than {MAX_DOCUMENT_BYTES} bytes",
            cure="Split it into pipelines that call each other.",
        )
    if text.lstrip()[:1] in ("{", b"{"):
        with suppress(InvalidInput):  # YAML refuses tabs, which JSON allows
            return parse_json(text, "(document)")
    try:
        value = load_yaml(text, _Loader, MAX_VALUES)
    except ValueError as error:
        raise _not_yaml(str(error)) from None
    check_plain(value, "(document)")
    return value


def load_yaml(text: str | bytes, loader: type[yaml.SafeLoader], max_values: int) -> Any:
    """Return the value of a YAML text, or raise ValueError with the line and the reason. `max_values`
    bounds what is in it, what aliases repeat counted each time."""
    try:
        value = yaml.load(text, Loader=loader)
        _count(value, max_values, max_values)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        raise ValueError(_reason(error)) from None
    return value


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML's safe loader; a key that is no word, or that is given twice, is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        seen: set[str] = set()
        for key in own:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is not a word", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key `{key.value}` stands twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Loader(UniqueKeyLoader):
    """With JSON's idea of what a plain word means."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )


def _count(value: Any, left: int, limit: int) -> int:
    left -= 1
    if left < 0:
        raise ValueError(f"it has more than {limit} values, aliases counted each time")
    if isinstance(value, dict):
        for item in value.values():
            left = _count(item, left, limit)
    elif isinstance(value, list):
        for item in value:
            left = _count(item, left, limit)
    return left


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())[:300]


def _not_yaml(reason: str) -> InvalidInput:
    return InvalidInput(
        field="(document)",
        reason=reason,
        cure="Write YAML or JSON; `hocket schema` prints what a pipeline may hold.",
    )
