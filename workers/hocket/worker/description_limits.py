"""What the platform does not use of the description of a node type, as far as a worker can tell: the
worker warns of it when it starts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hocket.schemas.messages import TypeDescribed

MAX_TIMEOUT_MS = 24 * 3_600_000
"""The limit on an attempt's time."""
MAX_SCHEMA_DEPTH = 48
"""How deep a schema may nest."""
MAX_SCHEMA_PARTS = 5_000
"""The most texts, numbers, lists and mappings in a schema."""
MAX_REPEATED = 1_000
"""The most repetitions in a pattern: the platform's engine for regular expressions (RE2) has no more."""
MAX_SHOWN_CHARS = 200
ROLES = ("config", "input", "output")
_REPEATED = re.compile(r"(?<!\\)\{(\d+)(?:,(\d*))?\}")


def unused_of(described: TypeDescribed) -> Iterator[tuple[str, str]]:
    """Yield what the platform will not use of a description, and the cure."""
    if described.timeout_ms is not None and described.timeout_ms > MAX_TIMEOUT_MS:
        reason = f"its timeout_ms is {described.timeout_ms:.0f}; the limit is {MAX_TIMEOUT_MS}"
        yield reason, "Let an attempt take 24 hours at most; a handler can wait for longer."
    for role in ROLES:
        fault = _fault_of(getattr(described, role))
        if fault is not None:
            yield f"the schema of its {role} {fault}", "Use smaller models that refer to others."
        for pattern in _large_patterns(getattr(described, role)):
            reason = (
                f"in the schema of its {role}, the pattern {pattern[:MAX_SHOWN_CHARS]} may repeat"
                f" more than {MAX_REPEATED} times"
            )
            yield reason, "Use `max_length` in place of a large number in a pattern."


def _large_patterns(schema: Any) -> Iterator[str]:
    for pattern in _patterns_in(schema):
        numbers = [int(one) for found in _REPEATED.findall(pattern) for one in found if one]
        if numbers and max(numbers) > MAX_REPEATED:
            yield pattern


def _fault_of(schema: Any) -> str | None:
    level: list[Any] = [schema]
    parts = depth = 0
    while level:
        depth, parts = depth + 1, parts + len(level)
        if depth > MAX_SCHEMA_DEPTH:
            return f"nests deeper than {MAX_SCHEMA_DEPTH} levels"
        level = [below for one in level for below in _below(one)]
        if parts + len(level) > MAX_SCHEMA_PARTS:
            return f"has more than {MAX_SCHEMA_PARTS:,} values"
    return None


def _below(part: Any) -> Iterator[Any]:
    if isinstance(part, Mapping):
        yield from part.values()
    elif isinstance(part, list | tuple):
        yield from part


def _patterns_in(schema: Any) -> Iterator[str]:
    """Yield the patterns in a schema; a default or an example may look like one."""
    if isinstance(schema, Mapping):
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            yield pattern
        of_names = schema.get("patternProperties")
        if isinstance(of_names, Mapping):
            yield from map(str, of_names)
    for below in _below(schema):
        yield from _patterns_in(below)
