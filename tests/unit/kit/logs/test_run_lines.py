"""Lines are handed to the run that they are logged for: what of them is kept, and what never is."""

import json
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

import pytest
import structlog
from pydantic import BaseModel, Field, field_serializer

from hocket.kit.logs.plain_fields import MAX_VALUES, UNREADABLE_VALUE, plain_fields
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

    __repr__ = __str__


class Shown:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


Kind = Enum("Kind", {"WEB": "web"}, type=str)


@dataclass
class Page:
    url: Any
    of: Any


class Lead(BaseModel):
    body: bytes
    page: Page = Field(serialization_alias="PAGE")
    phone: str = "030"
    salary: int = Field(default=1, exclude=True)

    @field_serializer("phone")
    def hidden(self, _phone: str) -> str:
        return "***"


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
    keeping(Redactor())(None, "info", {"event": Unreadable(), "lead": 7})
    long, unreadable = attempt.lines
    assert (len(long.text), long.text[-1], long.fields) == (MAX_TEXT_CHARS, "…", "")
    assert (unreadable.text, unreadable.fields) == (UNREADABLE, '{"lead":7}')


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (float("nan"), "NaN"),
        ({"of": [float("inf"), -float("inf")]}, {"of": ["Infinity", "-Infinity"]}),
        (b"\xff\xfe", r"\xff\xfe"),
        ([b"\xff", {"of": b"\xe9t\xe9"}], [r"\xff", {"of": r"\xe9t\xe9"}]),
        ("a\udc00", "a\ufffd"),
        ({"a": "\udc00"}, {"a": "\ufffd"}),
        (PurePath("/a\udc00"), "/a\ufffd"),
        (ValueError("a\udc00"), "a\ufffd"),
        ({"\udc00": {7}, b"\xff": None}, {"\ufffd": [7], r"\xff": None}),
        (Page("\udc00", Unreadable()), {"url": "\ufffd", "of": UNREADABLE_VALUE}),
        ([Page(b"\xff", Kind.WEB)], [{"url": r"\xff", "of": "web"}]),
        (
            Lead(body=b"\xff", page=Page(Kind.WEB, 7)),
            {"body": r"\xff", "PAGE": {"url": "web", "of": 7}, "phone": "***"},
        ),
        ([Kind.WEB, {Kind.WEB: b"\xff"}], ["web", {"web": r"\xff"}]),
        (deque(["\udc00"]), UNREADABLE_VALUE),
        (Unreadable(), UNREADABLE_VALUE),
        ([Unreadable()], [UNREADABLE_VALUE]),
    ],
    ids=[
        "nan",
        "infinities",
        "bytes",
        "inner bytes",
        "half",
        "inner half",
        "path",
        "error",
        "names",
        "dataclass",
        "inner dataclass",
        "model",
        "enum",
        "another kind",
        "unreadable",
        "inner unreadable",
    ],
)
def test_a_value_that_is_no_json_costs_neither_the_text_nor_the_other_fields(
    attempt: Attempt, value: Any, kept: Any
) -> None:
    fields = {"step_no": 7, "customer": "acme", "odd": value}
    keeping(Redactor())(None, "info", {"event": "epoch done", **fields})
    (line,) = attempt.lines
    assert line.text == "epoch done"
    assert json.loads(line.fields) == {"step_no": 7, "customer": "acme", "odd": kept}


def test_secrets_are_hidden_in_a_value_that_is_written_as_text(attempt: Attempt) -> None:
    secret = 'sk-"01234\\56789'
    value = {"half": "\udc00", "key": Shown(secret)}
    keeping(Redactor([secret]))(None, "info", {"event": "e", "value": value, "\udc00": 1})
    (line,) = attempt.lines
    assert json.loads(line.fields) == {
        "value": {"half": "\ufffd", "key": "***"},
        "\ufffd": 1,
    }


@pytest.mark.parametrize(
    ("secret", "value", "kept"),
    [
        ("schlüssel-geheim", b"\xff" + "schlüssel-geheim".encode(), r"\xff***"),
        ("schlüssel-geheim", ["\udc00", "schlüssel-geheim".encode()], ["\ufffd", "***"]),
        (
            "it's-a-secret-1",
            {"half": "\udc00", "k": 'say "hi" it\'s-a-secret-1'},
            {"half": "\ufffd", "k": 'say "hi" ***'},
        ),
    ],
    ids=["bytes", "inner bytes", "both quotes"],
)
def test_secrets_that_repr_would_write_differently_are_hidden(
    attempt: Attempt, secret: str, value: Any, kept: Any
) -> None:
    keeping(Redactor([secret]))(None, "info", {"event": "e", "value": value})
    (line,) = attempt.lines
    assert json.loads(line.fields) == {"value": kept}


def test_values_that_the_first_try_used_up_or_that_have_no_end_are_replaced(
    attempt: Attempt,
) -> None:
    endless: list[Any] = ["\udc00"]
    endless.append(endless)
    event = {"event": "e", "used": (one for one in (1, 2)), "endless": endless, "lead": 7}
    event["many"] = [b"\xff"] * MAX_FIELDS_CHARS
    keeping(Redactor())(None, "info", event)
    (line,) = attempt.lines
    told = dict.fromkeys(("used", "endless", "many"), UNREADABLE_VALUE)
    assert json.loads(line.fields) == {**told, "lead": 7}


def test_only_so_many_inner_values_of_a_line_are_read_whatever_its_number_of_fields() -> None:
    seen: list[str] = []

    def redacted(text: str) -> str:
        seen.append(text)
        return text

    wide = [["x"] * (MAX_VALUES // 3)]
    plain = plain_fields({**{f"f{no}": wide for no in range(9)}, "lead": 7}, redacted)
    assert seen.count("x") <= MAX_VALUES
    assert (plain["f0"], plain["f8"], plain["lead"]) == (wide, UNREADABLE_VALUE, 7)


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
