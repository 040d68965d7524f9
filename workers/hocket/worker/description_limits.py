"""What the platform refuses in the description of a node type, as far as a worker can tell. The platform
would leave out such a type without an answer to the worker."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hocket.schemas.messages import TypeDescribed, encoded

MAX_TIMEOUT_MS = 24 * 3_600_000
"""The limit on an attempt's time."""
MAX_SCHEMA_DEPTH = 48
"""How deep a schema may nest."""
MAX_SCHEMA_PARTS = 5_000
"""The most texts, numbers, lists and mappings in a schema."""
MAX_REPEATED = 1_000
"""The most repetitions in a pattern: the platform's engine for regular expressions (RE2) has no more."""
ROLES = ("config", "input", "output")
_REPEATED = re.compile(r"(?<!\\)\{(\d+)(?:,(\d*))?\}")


def refusal_of(described: TypeDescribed) -> tuple[str, str] | None:
    """Return why the platform would refuse a description, and the cure, or None."""
    if described.timeout_ms is not None and described.timeout_ms > MAX_TIMEOUT_MS:
        reason = f"its timeout_ms is {described.timeout_ms:.0f}; the limit is {MAX_TIMEOUT_MS}"
        return reason, "Let an attempt take 24 hours at most; a handler can wait for longer."
    if b"\\u0000" in encoded(described):
        reason = "its description or a schema has the character U+0000, which is not stored"
        return reason, "Remove it, such as from a default."
    for role in ROLES:
        fault = _fault_of(getattr(described, role))
        if fault is not None:
            return f"the schema of its {role} {fault}", "Use smaller models that refer to others."
    return None


def large_patterns(described: TypeDescribed) -> Iterator[tuple[str, str]]:
    """Yield the patterns that the platform will hardly accept, each with its role."""
    for role in ROLES:
        for pattern in _patterns_in(getattr(described, role)):
            numbers = [int(one) for found in _REPEATED.findall(pattern) for one in found if one]
            if numbers and max(numbers) > MAX_REPEATED:
                yield role, pattern


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
