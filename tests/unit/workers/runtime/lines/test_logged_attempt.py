"""How many lines of an attempt are kept, and that batches of them fit a message."""

from typing import Any

from hocket.kit.logs.run_lines import Line
from hocket.schemas.messages import encoded
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.tracing.log_lines import (
    MAX_ATTEMPT_CHARS,
    MAX_ATTEMPT_LINES,
    MAX_BATCH_BYTES,
    MAX_TEXT_CHARS,
    LineBatch,
    LogLine,
)
from hocket.workers.runtime.lines.logged_attempt import CUT, LoggedAttempt
from hocket.workers.runtime.lines.sender import _batches

NOW_MS = 1_800_000_000_000.0


class Kept:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def take(self, _attempt: LoggedAttempt, number: int, line: Line) -> None:
        self.lines.append((number, line.text))

    def log_fields(self) -> dict[str, Any]:
        return {}


def line(text: str) -> Line:
    return Line(NOW_MS, "info", text, "")


def requested() -> RequestedStep:
    return RequestedStep(
        run_id="r1", tenant="t", pipeline="p", version=1, step="a", node="a", type="python",
        attempt=1, input={}, config={}, deadline_at_ms=NOW_MS, slack_ms=0.0, timeout_ms=1.0,
        priority="standard", partition=0, epoch=1,
    )  # fmt: skip


def attempt(kept: Kept, step: RequestedStep | None = None) -> LoggedAttempt:
    return LoggedAttempt(step or requested(), 1, kept, kept)


def test_an_attempt_keeps_so_many_lines_and_says_at_the_end_that_there_were_more() -> None:
    kept = Kept()
    logged = attempt(kept)
    for number in range(3 * MAX_ATTEMPT_LINES):
        logged.keep_line(line(f"line {number}"))
    assert len(kept.lines) == MAX_ATTEMPT_LINES
    assert kept.lines[-2:] == [
        (MAX_ATTEMPT_LINES - 2, f"line {MAX_ATTEMPT_LINES - 2}"),
        (MAX_ATTEMPT_LINES - 1, CUT),
    ]


def test_an_attempt_keeps_so_much_text() -> None:
    kept = Kept()
    logged = attempt(kept)
    fits = MAX_ATTEMPT_CHARS // MAX_TEXT_CHARS
    for _ in range(fits + 10):
        logged.keep_line(line("x" * MAX_TEXT_CHARS))
    assert len(kept.lines) == fits + 1
    assert kept.lines[-1][1] == CUT


def test_batches_fit_a_message_whatever_the_characters_are_and_leave_nothing_out() -> None:
    kept = Kept()
    attempts = [attempt(kept) for _ in range(3)]
    some = [
        (one, LogLine(number=number, at_ms=NOW_MS, text="\x01" * 1_500))
        for one in attempts
        for number in range(200)
    ]
    batches = [batch for _, batch in _batches(some, "w")]
    sent = [line.number for batch in batches for one in batch for line in one.lines]
    assert sorted(sent) == sorted(number for _ in attempts for number in range(200))
    for batch in batches:
        size = len(encoded(LineBatch(attempts=tuple(batch))))
        assert size <= 2 * MAX_BATCH_BYTES < 2 * 1024 * 1024
