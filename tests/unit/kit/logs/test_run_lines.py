"""Lines are handed to the run that they are logged for: what of them is kept, and what never is."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from hocket.kit.logs.run_lines import (
    RUNNING,
    UNREADABLE,
    Line,
    LineHandler,
    RedactingFormatter,
    add_run,
    keeping,
)
from hocket.schemas.checks.redaction import Redactor
from hocket.schemas.tracing.log_lines import MAX_FIELDS_CHARS, MAX_TEXT_CHARS

RUN = "r" + "1" * 24
SECRET = "sk-0123456789"


class Attempt:
    """Work for a run that keeps what it is handed."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def log_fields(self) -> dict[str, Any]:
        return {"run_id": RUN, "step": "a", "attempt": 1, "trace_id": "t"}

    def keep_line(self, line: Line) -> None:
        self.lines.append(line)


class Unreadable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.fixture
def attempt() -> Iterator[Attempt]:
    attempt = Attempt()
    token = RUNNING.set(attempt)
    yield attempt
    RUNNING.reset(token)


@pytest.fixture
def log() -> Any:
    return structlog.wrap_logger(
        structlog.ReturnLogger(),
        processors=[
            add_run,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            keeping(Redactor([SECRET])),
            structlog.processors.JSONRenderer(),
        ],
    )


def test_a_line_is_kept_with_its_level_and_fields_and_without_what_names_its_step(
    attempt: Attempt, log: Any
) -> None:
    log.bind(run_id=RUN, step="a").warning("found", documents=3, of={"kind": "web"})
    (line,) = attempt.lines
    assert (line.level, line.text) == ("warning", "found")
    assert line.fields == '{"documents":3,"of":{"kind":"web"}}'


def test_secrets_of_the_process_and_passwords_of_urls_are_hidden(
    attempt: Attempt, log: Any
) -> None:
    log.info(f"asked with {SECRET}", url="postgres://me:hunter22@db/x", key=SECRET)
    (line,) = attempt.lines
    assert SECRET not in line.text + line.fields
    assert "hunter22" not in line.fields
    assert "postgres://me:***@db/x" in line.fields


def test_a_line_of_another_run_and_one_of_no_run_are_not_kept(attempt: Attempt, log: Any) -> None:
    log.info("of another", run_id="r" + "2" * 24)
    assert attempt.lines == []
    RUNNING.set(None)
    log.info("of none")
    assert attempt.lines == []


def test_an_exception_is_kept_as_it_is_written_out(attempt: Attempt, log: Any) -> None:
    try:
        raise ValueError("no such page")
    except ValueError:
        log.exception("fetch_failed")
    (line,) = attempt.lines
    assert line.level == "error"
    assert "ValueError: no such page" in line.fields


def test_what_is_too_long_is_cut_and_what_cannot_be_read_ends_no_handler(
    attempt: Attempt, log: Any
) -> None:
    log.info("x" * (MAX_TEXT_CHARS + 1), more="y" * MAX_FIELDS_CHARS)
    keeping(Redactor())(None, "info", {"event": "a", "value": Unreadable()})
    long, unreadable = attempt.lines
    assert (len(long.text), long.text[-1], long.fields) == (MAX_TEXT_CHARS, "…", "")
    assert unreadable.text == UNREADABLE


def test_what_a_library_logs_is_kept_too(attempt: Attempt) -> None:
    library = logging.Logger("somebody.http")
    library.addHandler(LineHandler(Redactor([SECRET])))
    library.warning("retry %d with %s", 2, SECRET)
    library.warning("broken %d", "two")
    first, second = attempt.lines
    assert (first.level, first.text) == ("warning", "retry 2 with ***")
    assert '"logger":"somebody.http"' in first.fields
    assert second.text == UNREADABLE


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_a_library_logs_cannot_look_like_a_line_of_its_own(attempt: Attempt, end: str) -> None:
    forged = '{"event": "service_failed", "service": "coordinator"}'
    said = logging.LogRecord("lib", logging.WARNING, "", 0, "got %s", (f"x{end}{forged}",), None)
    first, second = RedactingFormatter(Redactor([SECRET])).format(said).split("\n")
    assert (first, second.lstrip(" ")) == (
        "got x",
        f"| {forged} "
        + " ".join(f"{name}={value}" for name, value in attempt.log_fields().items()),
    )
