"""The parts of a schema, and how one is checked: a node pays for its keywords, and how deep nodes call
each other is bounded."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hocket.schemas.json_schema.faults import Fault, shown
from hocket.schemas.json_schema.patterns import Patterns
from hocket.schemas.templates.budget import Meter, Refused

MAX_CHECK_DEPTH = 150
"""How deep the parts of a schema may call each other while a value is checked."""

Check = Callable[[Meter, Any], Fault | None]
NODE_PRICE = 8


class Node:
    """A schema within a schema; its checks are set when all of it has been read."""

    __slots__ = ("allows", "checks", "price", "raw")

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.checks: tuple[Check, ...] = ()
        self.price = NODE_PRICE
        self.allows = raw is not False

    def check(self, meter: Meter, value: Any) -> Fault | None:
        """Return the first fault of a value."""
        meter.spend(self.price)
        if not self.allows:
            return Fault(lambda: f"False schema does not allow {shown(value)}")
        meter.depth += 1
        if meter.depth > MAX_CHECK_DEPTH:
            raise Refused("its references call each other too deep", "Write a flatter schema.")
        for check in self.checks:
            fault = check(meter, value)
            if fault is not None:
                meter.depth -= 1
                return fault
        meter.depth -= 1
        return None


class Reader(Protocol):
    """What reads the schemas below a keyword."""

    @property
    def patterns(self) -> Patterns: ...

    def node(self, raw: Any, *place: str | int) -> Node: ...

    def reference(self, text: str) -> Node: ...


Keyword = Callable[[Reader, Any, Mapping[str, Any]], Check | None]
