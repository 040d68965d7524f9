"""The parts of a schema, and how they check values: a node is charged for its keywords, and the depth of
calls between nodes is bounded."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hocket.schemas.json_schema.faults import Fault, shown
from hocket.schemas.json_schema.patterns import Patterns
from hocket.schemas.templates.budget import Meter, Refused

MAX_CHECK_DEPTH = 150
"""The maximum depth of calls between the parts of a schema while a value is checked."""

Check = Callable[[Meter, Any], Fault | None]
NODE_PRICE = 8


class Node:
    """A schema within a schema; its checks are set once all of it has been read."""

    __slots__ = ("allows", "checks", "price", "raw")

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.checks: tuple[Check, ...] = ()
        self.price = NODE_PRICE
        self.allows = raw is not False

    def check(self, meter: Meter, value: Any) -> Fault | None:
        """Return the first fault of a value, or None."""
        meter.spend(self.price)
        if not self.allows:
            return Fault(lambda: f"False schema does not allow {shown(value)}")
        meter.depth += 1
        if meter.depth > MAX_CHECK_DEPTH:
            raise Refused("its references call each other too deeply", "Write a flatter schema.")
        for check in self.checks:
            fault = check(meter, value)
            if fault is not None:
                meter.depth -= 1
                return fault
        meter.depth -= 1
        return None


class Reader(Protocol):
    """Reads the schemas below a keyword."""

    @property
    def patterns(self) -> Patterns: ...

    def node(self, raw: Any, *place: str | int) -> Node: ...

    def reference(self, text: str) -> Node: ...


Keyword = Callable[[Reader, Any, Mapping[str, Any]], Check | None]
