"""Reads the text of a pipeline file: YAML, or JSON, which is YAML too.

Narrower than YAML 1.1 where that surprises: `on:` is a key and not `true`, dates stay text, a key
given twice is refused, and aliases cannot make a small file into a huge value.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from hocket.schemas.checks.plain_json import check_plain, parse_json
from hocket.schemas.errors import InvalidInput

MAX_DOCUMENT_BYTES = 1_000_000
MAX_VALUES = 100_000
"""The most values in a document; values that aliases and merges repeat count each time."""
MAX_YAML_DEPTH = 400
"""The most levels of a YAML text; plain_json allows fewer in the resulting value."""
MAX_DIRECTIVES = 10
"""The most lines that begin with `%`: the parser compares each tag prefix with all before it."""
MERGE = "tag:yaml.org,2002:merge"
TOO_DEEP = "it nests too deep"
_OF_WRONG_TAGS = (ArithmeticError, AttributeError, LookupError, TypeError)
"""What PyYAML raises for a value that does not match its tag."""
# after each character that YAML takes for the end of a line
_DIRECTIVE = re.compile(rb"(?:^|[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9])%")

_LINE = re.compile(r"line ([0-9]{1,7}), ")
_QUOTED = re.compile(r"""  "(?:[^"\\]|\\.)*" | '[^']*' | (?:^|[ ])[#].*  """, re.VERBOSE)
"""What is no plain text in a line: quoted text and a comment."""
_MAX_LINE_CHARS = 2_000
"""How much of a line is looked at for what is wrong with it."""


def parse_document(text: str | bytes) -> Any:
    """Return the JSON value of a pipeline file; raise InvalidInput with the line and the cure."""
    if len(text) > MAX_DOCUMENT_BYTES:
        raise InvalidInput(
            field="(document)",
            reason=f"it has more than {MAX_DOCUMENT_BYTES} bytes",
            cure="Split it into pipelines that call each other.",
        )
    if text.lstrip()[:1] in ("{", b"{"):
        try:
            return parse_json(text, "(document)")  # YAML refuses tabs, which JSON allows
        except InvalidInput as error:
            if error.fields["field"] != "(document)":  # valid JSON, but with an invalid value
                raise
    try:
        value = load_yaml(text, _Loader, MAX_VALUES)
    except ValueError as error:
        raise _not_yaml(str(error), text) from None
    check_plain(value, "(document)")
    return value


def load_yaml(text: str | bytes, loader: "type[UniqueKeyLoader]", max_values: int) -> Any:
    """Return the value of a YAML text, or raise ValueError with the line and the reason. `max_values`
    limits its values; those that aliases and merged keys repeat count each time."""
    try:
        _check_size(text, max_values)
        reading = loader(text)
        reading.merges_left = max_values
        try:
            value = reading.get_single_data()
        finally:
            reading.dispose()
        _count(value, max_values, max_values)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        raise ValueError(_reason(error)) from None
    except _OF_WRONG_TAGS:
        raise ValueError("a value does not match its tag (`!!...`); leave tags out") from None
    return value


def _check_size(text: str | bytes, max_values: int) -> None:
    """Read a text's events one by one, and stop before they become a value that is too large or too
    deep, because the parser takes quadratic time for deep nesting."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(_DIRECTIVE.findall(content)) > MAX_DIRECTIVES:
        raise ValueError(f"it has more than {MAX_DIRECTIVES} directives (`%TAG`)")
    left, depth = max_values, 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            left -= 1
            depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > MAX_YAML_DEPTH:
            raise ValueError(TOO_DEEP)
        if left < -max_values:  # keys do not count as values, but they are events
            raise _too_many(max_values)


class UniqueKeyLoader(yaml.CSafeLoader):
    """YAML's safe loader; a key that is not a string, or is given twice, is an error. Values that merges
    (`<<`) repeat are counted before they are made."""

    merges_left = MAX_VALUES

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Insert the keys of merged mappings before a mapping's own."""
        merged = [value for key, value in node.value if key.tag == MERGE]
        if not merged:
            return
        node.value = [(key, value) for key, value in node.value if key.tag != MERGE]
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        for value in merged:
            several = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for one in reversed(several):
                if not isinstance(one, yaml.MappingNode):
                    raise yaml.constructor.ConstructorError(
                        None, None, "`<<` merges something that is not a mapping", value.start_mark
                    )
                self.flatten_mapping(one)
                self.merges_left -= len(one.value)
                if self.merges_left < 0:
                    raise ValueError("it merges more keys than it may have values")
                pairs += one.value
        node.value = pairs + node.value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        own = [key for key, _ in node.value if key.tag != MERGE]
        seen: set[str] = set()
        for key in own:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is not a word", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key `{key.value}` is used twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return a number; raise ConstructorError for one of base 60, which takes quadratic time."""
        if ":" in node.value:
            raise yaml.constructor.ConstructorError(
                None, None, "a number has `:` in it; write it in decimal digits", node.start_mark
            )
        is_int = node.tag.endswith(":int")
        made = self.construct_yaml_int if is_int else self.construct_yaml_float
        number: int | float = made(node)
        return number


for _kind in ("int", "float"):
    UniqueKeyLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", UniqueKeyLoader.construct_number)


class _Loader(UniqueKeyLoader):
    """A loader that reads plain words as JSON would."""


class DocumentDumper(yaml.CSafeDumper):
    """A dumper that also quotes the text that only `parse_document` reads as a number, such as `1e3`."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag in ("tag:yaml.org,2002:null", MERGE)
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    for _class in (_Loader, DocumentDumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first)
        )


def _count(value: Any, left: int, limit: int) -> int:
    left -= 1
    if left < 0:
        raise _too_many(limit)
    if isinstance(value, dict):
        for item in value.values():
            left = _count(item, left, limit)
    elif isinstance(value, list):
        for item in value:
            left = _count(item, left, limit)
    return left


def _too_many(limit: int) -> ValueError:
    return ValueError(f"it has more than {limit} values, counting aliases each time they are used")


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())[:300]


def _not_yaml(reason: str, text: str | bytes) -> InvalidInput:
    line = _line_of(reason, text)
    cure = "Write YAML or JSON; `hocket schema` prints what a pipeline may contain."
    if "{{" in _QUOTED.sub("", line):
        cure = 'Put the template in quotes: `NAME: "{{ ... }}"`.'
    elif "\t" in line[: len(line) - len(line.lstrip())]:
        cure = "Indent with spaces, not with tabs."
    return InvalidInput(field="(document)", reason=reason, cure=cure)


def _line_of(reason: str, text: str | bytes) -> str:
    """Return the line that a reason names, or ""."""
    named = _LINE.match(reason)
    lines = (text if isinstance(text, str) else text.decode("utf-8", "replace")).splitlines()
    number = int(named[1]) if named else 0
    return lines[number - 1][:_MAX_LINE_CHARS] if 0 < number <= len(lines) else ""
