"""Waiting for a run while the API has no place for a stream."""

import itertools
from typing import Any, TypeAlias

import httpx2
import pytest

from hocket.client import ApiUnreachable, AsyncHocket, Hocket, RequestRefused
from hocket.client.live import RECONNECT_S, RunStream, Wait, full_pause_s
from hocket.client.requests import MAX_PAUSE_S, MAX_TRIES
from hocket.schemas.rest import ErrorReply
from support.shared.scripted_api import Answer, as_json, refusal

URL = "http://hocket.example"
AT = "2026-01-01T00:00:00Z"
TAKEN = {"run_id": "r", "pipeline": "p", "status": "accepted", "url": "/v1/runs/r"}
RUN = {
    "run_id": "r",
    "tenant": "t",
    "pipeline": "p",
    "version": 1,
    "class": "standard",
    "accepted_at": AT,
    "deadline_at": AT,
    "spent_usd": "0",
    "input": {},
}
RUNNING = as_json(200, {**RUN, "status": "running"})
ENDED = as_json(200, {**RUN, "status": "succeeded", "finished_at": AT, "output": 7})
UNKNOWN = refusal(404, "run_unknown", "There is no run.")
BUSY = refusal(429, "tenant_busy", "Too many requests.")
RATE_LIMITED = refusal(429, "rate_limited", "Too many requests.")
FULL = refusal(429, "tenant_live_full", "No place is left.")
API_FULL = refusal(503, "api_full", "Too many requests at once.")
DATABASE_AWAY = refusal(503, "database_unavailable", "It is away.")
PROXY = (502, b"<html>Bad gateway</html>")
AWAY = httpx2.ConnectError("refused")
END = b"id: 1\nevent: run\ndata: {}\n\n"


Told: TypeAlias = Answer | Exception


class FullApi:
    """An API without a place for a stream until it has given these answers to who looks at the run."""

    def __init__(self, *looks: Answer, status: int = 429, code: str = "tenant_live_full") -> None:
        self.streams = 0
        self._looks = list(looks)
        self._full = refusal(status, code, "No place is left.")

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return _response(as_json(202, TAKEN))
        if request.url.path.endswith("/events"):
            self.streams += 1
            return _response(self._full) if self._looks else _response((200, END))
        return _response(self._looks.pop(0) if self._looks else ENDED)


class ToldApi:
    """An API that gives these answers to the requests for the stream, and to those for the run, and then
    the end of both."""

    def __init__(self, streams: list[Told], looks: list[Told]) -> None:
        self._streams = list(streams)
        self._looks = list(looks)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        is_stream = request.url.path.endswith("/events")
        told = self._streams if is_stream else self._looks
        answer = told.pop(0) if told else ((200, END) if is_stream else ENDED)
        if isinstance(answer, Exception):
            raise answer
        return _response(answer)


def _response(answer: Answer) -> httpx2.Response:
    status, body = answer
    headers = {"Retry-After": "0", "Content-Type": "text/event-stream"}
    return httpx2.Response(status, content=body, headers=headers)


def _refused(answer: Answer) -> RequestRefused:
    status, body = answer
    return RequestRefused(status, ErrorReply.model_validate_json(body).error)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.client.requests.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("hocket.client.live.FULL_PAUSE_S", 0.0)


def client(api: Any) -> Hocket:
    return Hocket(URL, key="k", transport=httpx2.MockTransport(api))


@pytest.mark.parametrize(("status", "code"), [(429, "tenant_live_full"), (503, "live_full")])
async def test_a_run_is_waited_for_until_there_is_a_place(status: int, code: str) -> None:
    sync_api, api = (FullApi(*[RUNNING] * 9, status=status, code=code) for _ in range(2))
    with client(sync_api) as hocket:
        assert hocket.run("p").output == 7
    async with AsyncHocket(URL, key="k", transport=httpx2.MockTransport(api)) as hocket_too:
        assert (await hocket_too.run("p")).output == 7
    assert sync_api.streams == api.streams == 9 + 1


def test_a_run_that_ends_without_a_place_is_found() -> None:
    api = FullApi(RUNNING, ENDED, RUNNING)
    with client(api) as hocket:
        assert hocket.run("p").output == 7


def test_a_run_that_is_not_known_yet_is_waited_for_without_a_place() -> None:
    with client(FullApi(UNKNOWN, RUNNING, ENDED)) as hocket:
        assert hocket.run("p").output == 7
    with client(FullApi(UNKNOWN, RUNNING)) as hocket, pytest.raises(RequestRefused, match="no run"):
        hocket.result("r")


def test_an_api_that_is_too_busy_to_show_the_run_is_asked_later() -> None:
    with client(FullApi(*[BUSY] * MAX_TRIES, RUNNING)) as hocket:
        assert hocket.run("p").output == 7


@pytest.mark.parametrize(
    ("streams", "looks"),
    [
        ([FULL, *[RATE_LIMITED] * 5, FULL], [RUNNING] * 7),
        ([RATE_LIMITED, FULL, RATE_LIMITED], [RUNNING] * 2),
        ([FULL, API_FULL, FULL], [RUNNING] * 3),
        ([FULL, AWAY, FULL], [RUNNING] * 3),
        ([FULL, AWAY, AWAY], [RUNNING, *[AWAY] * MAX_TRIES, RUNNING]),
        ([FULL, PROXY, PROXY], [RUNNING, *[PROXY] * MAX_TRIES, RUNNING]),
        ([FULL] * 3, [RUNNING, *[DATABASE_AWAY] * MAX_TRIES, RUNNING]),
    ],
    ids=[
        "then it is too busy",
        "it was too busy before",
        "then it has too many requests",
        "then it is away",
        "then it restarts",
        "then a proxy answers",
        "then its database is away",
    ],
)
async def test_a_wait_without_a_place_goes_on(streams: list[Told], looks: list[Told]) -> None:
    with client(ToldApi(streams, looks)) as hocket:
        assert hocket.result("r").output == 7
    transport = httpx2.MockTransport(ToldApi(streams, looks))
    async with AsyncHocket(URL, key="k", transport=transport) as hocket_too:
        assert (await hocket_too.result("r")).output == 7


def test_a_wait_without_a_place_ends_when_the_api_stays_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(0.0, RECONNECT_S / 3)
    monkeypatch.setattr("hocket.client.live.monotonic", lambda: next(clock))
    api = ToldApi([FULL, *[AWAY] * 99], [RUNNING, *[AWAY] * 99])
    with client(api) as hocket, pytest.raises(ApiUnreachable):
        hocket.result("r")


@pytest.mark.parametrize(
    "answer",
    [FULL, RATE_LIMITED, API_FULL, UNKNOWN],
    ids=["no place", "too busy", "too many requests", "not known yet"],
)
def test_each_answer_lets_a_wait_without_a_place_outlive_an_api_that_is_away(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr("hocket.client.live.monotonic", lambda: now_s)
    stream = RunStream.of_run("r", appears_until_s=10 * RECONNECT_S)
    wait = Wait()
    assert wait.goes_on_after(_refused(FULL), stream)
    for _ in range(3):
        now_s += RECONNECT_S - 1
        assert wait.goes_on_after(_refused(answer), stream)
    now_s += RECONNECT_S - 1
    away = ApiUnreachable(url=URL, reason="refused")
    assert wait.goes_on_after(away, stream)
    now_s += 1
    assert not wait.goes_on_after(away, stream)


def test_a_stream_that_got_a_place_is_tried_again_as_any_other_when_it_breaks() -> None:
    place = (200, b"id: 1\nevent: place\ndata: {}\n\n")
    api = ToldApi([FULL, place, RATE_LIMITED, AWAY, (200, END)], [RUNNING, ENDED])
    with client(api) as hocket:
        assert hocket.result("r").output == 7


def test_another_refusal_of_a_stream_ends_the_wait() -> None:
    api = FullApi(RUNNING, status=403, code="permission_denied")
    with client(api) as hocket, pytest.raises(RequestRefused, match="No place is left"):
        hocket.result("r")


def test_the_pauses_grow_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.client.live.FULL_PAUSE_S", 1.0)
    assert 0.5 <= full_pause_s(0) <= 1.0
    assert 2.0 <= full_pause_s(2) <= 4.0
    assert MAX_PAUSE_S / 2 <= full_pause_s(10_000) <= MAX_PAUSE_S
