"""Play the hostile templates and schemas in this process and print the results as JSON lines.

Each line has the kind, the outcome, the number of operations, and the CPU time, both in milliseconds and
in that of 100,000 squares, which this machine computed right after it. Of what seems to take long, the
least of some tries counts: other work on the machine only ever adds to it. The last line has the memory
that all of them took.

python tests/support/templates/play_hostile.py
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from hocket.schemas.errors import HocketError
from hocket.schemas.json_schema.schema import compile_schema
from hocket.schemas.pipeline import expressions
from hocket.schemas.templates.budget import MAX_OPERATIONS, Meter
from support.templates.hostile import ESCAPES, MEMORY, RECURSION, SCHEMAS, SCOPE, TIME, VALUES

ROOM_BYTES = 400 << 20
CPU_S = 240
LONG_SQUARES = 40.0
TRIES = 4


class _Counted(Meter):
    """A meter that is remembered, so that its operations can be reported."""

    last: Meter | None = None

    def __init__(self, operations: int = MAX_OPERATIONS) -> None:
        super().__init__(operations)
        _Counted.last = self


def main() -> None:
    expressions.Meter = _Counted  # type: ignore[misc]
    held = _address_space_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM_BYTES, held + ROOM_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    _evaluate("{{ x + 1 }}")  # so that the first one is not charged for what is loaded once
    before = _peak_bytes(anew=True)
    tables = {
        "time": TIME,
        "memory": MEMORY,
        "recursion": RECURSION,
        "values": VALUES,
        "escapes": ESCAPES,
    }
    for kind, table in tables.items():
        for text in table:
            _play(kind, text, lambda text=text: _evaluate(text))  # type: ignore[misc]
    for number, (schema, value) in enumerate(SCHEMAS):
        _play("schemas", f"schema {number}", lambda s=schema, v=value: _check(s, v))  # type: ignore[misc]
    print(json.dumps({"peak_bytes": _peak_bytes() - before}))


def _play(kind: str, shown: str, play: Callable[[], Any]) -> None:
    squares = inf
    for _ in range(TRIES):
        outcome, cpu_ms, took = _measured(play)
        squares = min(squares, took)
        if squares < LONG_SQUARES:
            break
    left = None if _Counted.last is None else _Counted.last.operations_left
    row = {"kind": kind, "text": shown[:100], "outcome": outcome, "left": left}
    print(json.dumps(row | {"cpu_ms": cpu_ms, "squares": squares}))


def _measured(play: Callable[[], Any]) -> tuple[str, float, float]:
    """Return the outcome, and the time that it took (ms, and in squares).

    The time is this thread's: under a limit of CPU time, Linux counts a process's in ticks.
    """
    _Counted.last = None
    began = time.thread_time()
    try:
        outcome = f"gave {str(play())[:200]}"
    except HocketError as error:
        outcome = f"refused: {error.fields.get('reason', error)}"
    except Exception as error:
        outcome = f"RAISED {error!r}"
    cpu_ms = (time.thread_time() - began) * 1_000
    began = time.thread_time()
    sum(number * number for number in range(100_000))
    return outcome, cpu_ms, cpu_ms / (time.thread_time() - began) / 1_000


def _evaluate(text: str) -> Any:
    braced = "{{" in text or "{%" in text or "{#" in text
    whole = text if braced else "{{ " + text + " }}"
    list(expressions.readings(whole, "field"))
    return expressions.compile_value(whole, "field")(SCOPE)


def _check(schema: Any, value: Any) -> str:
    compile_schema(schema, "input").check(value, "input", "Send another.")
    return "valid"


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _peak_bytes(*, anew: bool = False) -> int:
    """Return the most memory that this process has had, from now on if it is measured anew; `getrusage`
    would begin with that of the process that started this one."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.exit(main())
