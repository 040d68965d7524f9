"""What python nodes return and raise in `test_values.py`, by name."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


MADE: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": [float("inf"), -float("inf")],
    "nul": "a\x00b",
    "a key with nul": {"a\x00b": 1},
    "half of a pair": "a\ud800b",
    "two halves": "\ud83d\ude00",
    "decimal": Decimal("1e-20000"),
    "moment": datetime(2026, 1, 2, tzinfo=UTC),
    "set": {1},
    "tuple": (1, 2),
    "2^70": 2**70,
    "5000 digits": 10**4_999,
    "depth 30": _deep(30),
    "depth 70": _deep(70),
    "depth 400": _deep(400),
    "an object": object(),
    "bytes that are no text": b"\xff\x00",
    "a number as key": {1: 2},
    "terminal": "\x1b[31m\u202e",
    "template": "{{ 7*7 }}",
}
"""Values to return."""
RAISED = (
    "\x1b[31mred\u202e",
    "nul \x00",
    "half \ud800",
    "{{ 7*7 }}",
    "{field} {0}",
    "x" * 100_000,
    "",
)
"""Messages of exceptions."""


class Loop(dict[str, Any]):
    """A value that contains itself."""

    def __init__(self) -> None:
        super().__init__()
        self["v"] = self


async def make(given: dict[str, Any]) -> Any:
    """Return or raise what is asked for."""
    name = given["input"]["v"] if "input" in given else given["v"]
    if name == "itself":
        return Loop()
    if isinstance(name, int):
        raise ValueError(RAISED[name])
    return {"v": MADE[name]}
