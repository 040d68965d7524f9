"""What the parts of the compiler share: the compiler's interface, and constants.

A node costs one operation, charged to the template, loop or macro that contains it. Operators, filters,
tests, methods and functions charge for anything beyond that themselves.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from jinja2 import nodes

from hocket.schemas.checks.plain_json import check_plain
from hocket.schemas.errors import InvalidInput
from hocket.schemas.templates.budget import MAX_INTEGER, Refused, stopped
from hocket.schemas.templates.frames import Frame, Value
from hocket.schemas.templates.scopes import Scopes
from hocket.schemas.templates.values import refuse_reference

PAGE = "docs/reference/constructs/expressions.md"


class Compiler(Protocol):
    """The compiler's interface: `scopes` has the names that the template itself sets, `size` counts the
    compiled nodes."""

    scopes: Scopes
    size: int

    def value(self, node: nodes.Node) -> Value:
        """Return the function of an expression; raise Refused for anything that templates may not
        use."""


def values_of(compiler: Compiler, parts: Sequence[nodes.Expr]) -> list[Value]:
    return [compiler.value(part) for part in parts]


def readable(value: Value) -> Value:
    """Return the function of an expression whose value is about to be read: it refuses a reference to a
    large value."""

    def read(frame: Frame) -> Any:
        found = value(frame)
        if type(found) is dict:
            refuse_reference(found)
        return found

    return read


def constant_of(value: Any) -> Any:
    """Return a constant of a template; raise Refused for one that JSON or Postgres does not accept."""
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise Refused("it has an integer beyond 64 bits", "Write it as text.")
    if isinstance(value, str) and not value.isascii():
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    try:
        check_plain(value, "constant")
    except InvalidInput as error:
        raise stopped(error) from None
    return value


def not_available(what: str) -> Refused:
    return Refused(f"{what} is not available in expressions", f"See {PAGE}.")
