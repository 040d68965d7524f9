"""A run with many model calls is recorded from all pages that the API has of it, each attempt with the
call to which it belongs."""

import json
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from hocket.cli.remote import recording
from hocket.cli.remote.api import Api, with_query
from hocket.cli.remote.recording import CannotRecord, NothingKept, _call_of, recording_of
from support.shared.scripted_api import Answer, as_json, scripted_api

CALLS = 1_234
HASH = "#0123456789abcdef"
CALL, AGENTS = "r1:a:1:1:1", "r1:ask#1:1:1:1"
RUN = {"run_id": "r", "pipeline": "p", "finished_at": "2020-01-01T00:00:00+00:00"}
STEP = {"step": "s", "type": "llm", "role": "step", "attempt": 1}


def content(number: int) -> dict[str, Any]:
    return {
        "call_id": f"c{number:05}",
        "step": "s",
        "model": "m",
        "kept": "full",
        "prompt": {"messages": []},
        "answer": {"text": str(number)},
        "started_at": f"{number:05}",
    }


def attempt(number: int) -> dict[str, Any]:
    return {
        "call_id": f"c{number:05}",
        "cost_usd": "0.01",
        "input_tokens": 1,
        "output_tokens": 1,
        "latency_ms": 1.0,
    }


class Stored:
    """Lists of the API, and how much of each is asked for at once."""

    def __init__(self, calls: int, *, missing_at_first: int = 0) -> None:
        self.lists = {
            "/v1/runs/r/steps": ("steps", [STEP]),
            "/v1/content": ("content", [content(number) for number in range(calls)]),
            "/v1/calls": ("calls", [attempt(number) for number in range(calls)]),
        }
        self.limits: dict[str, set[int]] = {}
        self.readings = 0
        self.missing_at_first = missing_at_first

    def answer(self, asked: str, _body: Any) -> Answer:
        url = urlsplit(asked.removeprefix("GET "))
        if url.path == "/v1/runs/r":
            return as_json(200, RUN)
        what, rows = self.lists[url.path]
        query = parse_qs(url.query)
        start, limit = int(query.get("after", ["0"])[0]), int(query["limit"][0])
        self.limits.setdefault(what, set()).add(limit)
        if what == "content":
            self.readings += start == 0
            rows = rows[: len(rows) - self.missing_at_first] if self.readings == 1 else rows
        there_is_more = start + limit < len(rows)
        page = {
            what: rows[start : start + limit],
            "truncated": there_is_more,
            "next": str(start + limit) if there_is_more else None,
        }
        return as_json(200, page)


def test_an_answer_that_was_cut_off_is_recorded_as_that() -> None:
    stored = Stored(2)
    stored.lists["/v1/content"][1][1]["answer"]["finish_reason"] = "length"
    with scripted_api(stored.answer) as api:
        found = recording_of(Api(api.url), "r")
    assert [call.answer.finish_reason for call in found.calls] == ["", "length"]


def test_all_calls_of_a_run_are_recorded() -> None:
    stored = Stored(CALLS)
    with scripted_api(stored.answer) as api:
        found = recording_of(Api(api.url), "r")
    assert [call.answer.text for call in found.calls] == [str(number) for number in range(CALLS)]
    assert {call.input_tokens for call in found.calls} == {1}
    assert stored.limits == {"steps": {500}, "content": {100}, "calls": {500}}


def test_a_run_with_more_calls_than_a_recording_may_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "MAX_CALLS", CALLS - 1)
    with (
        scripted_api(Stored(CALLS).answer) as api,
        pytest.raises(CannotRecord, match="it has more than 1,233 model calls"),
    ):
        recording_of(Api(api.url), "r")


class SlowApi:
    """An API that takes its time for stored answers, and the clock that shows it."""

    def __init__(self, stored: Stored, takes_s: float) -> None:
        self.stored, self.takes_s, self.now_s = stored, takes_s, 0.0

    def get(self, place: str, **query: Any) -> Any:
        self.now_s += self.takes_s if place == "/v1/content" else 0.0
        return json.loads(self.stored.answer(f"GET {with_query(place, query)}", None)[1])

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_first_reading_that_takes_long_leaves_time_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last answer is stored while the first pages are read."""
    api = SlowApi(Stored(3, missing_at_first=1), 2 * recording.BOOKED_S)
    monkeypatch.setattr(recording, "time", api)
    assert len(recording_of(cast("Api", api), "r").calls) == 3
    assert api.stored.readings == 2

    api = SlowApi(Stored(3), recording.BOOKED_S / 4)
    monkeypatch.setattr(recording, "time", api)
    del api.stored.lists["/v1/content"][1][-1]
    with pytest.raises(NothingKept, match="1 of 3"):
        recording_of(cast("Api", api), "r")


@pytest.mark.parametrize(
    ("attempt_id", "call_id"),
    [
        (CALL, CALL),
        (f"{CALL}:t1:r2:h", CALL),
        (f"{CALL}{HASH}", CALL),
        (f"{CALL}:t1{HASH}", CALL),
        (f"{AGENTS}:t1", AGENTS),
        (f"r1:other{HASH}:1", f"r1:other{HASH}:1"),
        (f"r1:other{HASH}", f"r1:other{HASH}"),
        ("r1:b:1:1:1", None),
        (f"r1:b:1:1:1{HASH}", None),
    ],
)
def test_an_attempt_is_of_the_call_whose_id_its_own_begins_with(
    attempt_id: str, call_id: str | None
) -> None:
    known = (CALL, AGENTS, f"r1:other{HASH}:1", f"r1:other{HASH}")
    assert _call_of(attempt_id, known) == call_id
