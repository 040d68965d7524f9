"""Connections of the client: whose they are, and what comes over them that is no answer."""

import asyncio
import gc
import json
import os
import warnings
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from hocket.client import (
    AnswerUnreadable,
    ApiUnreachable,
    AsyncHocket,
    Hocket,
    RequestRefused,
)
from hocket.schemas.errors import InvalidInput
from hocket.schemas.rest import RunResult
from support.shared.scripted_api import Answer, as_json, refusal, scripted_api


def unknown(_asked: str, _body: Any) -> Answer:
    return refusal(404, "run_unknown", "There is no run.")


def ask(hocket: Hocket) -> None:
    with pytest.raises(RequestRefused, match="There is no run"):
        hocket.runs.get("r")


async def ask_in_loop(client: AsyncHocket) -> None:
    with pytest.raises(RequestRefused, match="There is no run"):
        await client.runs.get("r")


def test_a_forked_process_does_not_use_its_parents_connections() -> None:
    with scripted_api(unknown) as api, Hocket(api.url, key="k") as hocket:
        ask(hocket)
        child = os.fork()
        if child == 0:
            try:
                ask(hocket)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        ask(hocket)
    own, of_child, own_again = api.ports
    assert own == own_again != of_child


def test_a_client_can_be_used_in_one_event_loop_after_another() -> None:
    async def twice(client: AsyncHocket) -> None:
        await ask_in_loop(client)
        await ask_in_loop(client)

    with scripted_api(unknown) as api, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the first loop, which closed nothing
        client = AsyncHocket(api.url, key="k")
        asyncio.run(twice(client))
        asyncio.run(twice(client))
        asyncio.run(client.aclose())
        gc.collect()
    assert len(set(api.ports)) == 2


async def test_many_runs_that_are_followed_keep_no_other_request_waiting() -> None:
    many, following = 150, asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        if b"/events" in asked:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 1\n\n")
            following.release()
            await reader.read()  # until the client leaves
        else:
            status, body = unknown("", None)
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
            writer.write(body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(30), server, AsyncHocket(url, key="k") as hocket:
        waiting = [asyncio.create_task(anext(hocket.follow_all())) for _ in range(many)]
        for _ in range(many):
            await following.acquire()
        await ask_in_loop(hocket)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def test_a_body_that_cannot_be_decompressed_is_no_answer() -> None:
    with scripted_api(lambda *_: (200, b"no gzip"), Content_Encoding="gzip") as api:
        with Hocket(api.url, key="k") as hocket, pytest.raises(ApiUnreachable):
            hocket.runs.signal("r", "go")
        assert len(api.asked) == 1


def end_of(output: str) -> bytes:
    """The events of a run that has ended."""
    moment = "2026-01-01T00:00:00Z"
    ended = {
        "run_id": "r",
        "pipeline": "p",
        "version": 1,
        "status": "succeeded",
        "output": output,
        "accepted_at": moment,
        "finished_at": moment,
        "deadline_at": moment,
        "duration_ms": 1.0,
        "met_deadline": True,
    }
    return f"id: 5\n\nevent: run\ndata: {json.dumps(ended)}\n\n".encode()


def test_the_result_of_a_run_that_is_followed_may_be_large() -> None:
    output = "y" * 3_000_000

    def once(_asked: str, _body: Any) -> Answer:
        is_first = len(api.asked) == 1
        return (200, end_of(output)) if is_first else refusal(404, "run_unknown", "Asked again.")

    with (
        scripted_api(once, Content_Type="text/event-stream") as api,
        Hocket(api.url, key="k") as hocket,
    ):
        (end,) = hocket.follow("r")
    assert isinstance(end, RunResult)
    assert end.output == output


@pytest.mark.parametrize(
    "submit",
    [
        lambda hocket: hocket.runs.submit("p").run_id,
        lambda hocket: hocket.bulk.submit([{"pipeline": "p"}]).runs[0].run_id,
    ],
    ids=["one", "many"],
)
def test_a_run_whose_task_was_taken_may_appear_later(
    monkeypatch: pytest.MonkeyPatch, submit: Callable[[Hocket], str]
) -> None:
    monkeypatch.setattr("hocket.client.sync_client.APPEAR_PAUSE_S", 0.0)

    def later(asked: str, _body: Any) -> Answer:
        if "bulk" in asked:
            return as_json(202, {"accepted": 1, "refused": 0, "runs": [{"run_id": "r"}]})
        if asked.startswith("POST"):
            taken = {"run_id": "r", "pipeline": "p", "status": "accepted", "url": "/v1/runs/r"}
            return as_json(202, taken)
        if len(api.asked) < 12:
            return refusal(404, "run_unknown", "There is no run.")
        return 200, end_of("there")

    with (
        scripted_api(later, Content_Type="text/event-stream") as api,
        Hocket(api.url, key="k") as hocket,
    ):
        run_id = submit(hocket)
        (end,) = hocket.follow(run_id)
        assert isinstance(end, RunResult)
        assert end.output == "there"


def test_a_stream_that_broke_waits_for_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.client.requests.FIRST_PAUSE_S", 0.0)

    def restarted(_asked: str, _body: Any) -> Answer:
        if len(api.asked) == 1:
            return 200, b"id: 4\n\n"
        return (502, b"no upstream") if len(api.asked) < 20 else (200, end_of("there"))

    with (
        scripted_api(restarted, Content_Type="text/event-stream") as api,
        Hocket(api.url, key="k") as hocket,
    ):
        (end,) = hocket.follow("r")
        assert isinstance(end, RunResult)


def test_a_stream_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.client.requests.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("hocket.client.live.RECONNECT_S", 0.0)

    def away(_asked: str, _body: Any) -> Answer:
        return (200, b"id: 4\n\n") if len(api.asked) == 1 else (502, b"no upstream")

    with (
        scripted_api(away, Content_Type="text/event-stream") as api,
        Hocket(api.url, key="k") as hocket,
        pytest.raises(AnswerUnreadable, match="answered 502"),
    ):
        list(hocket.follow("r"))
    assert len(api.asked) == 5


def test_a_run_that_nobody_submitted_is_unknown_at_once() -> None:
    with scripted_api(unknown) as api, Hocket(api.url, key="k") as hocket:
        with pytest.raises(RequestRefused, match="There is no run"):
            hocket.result("r")
        assert len(api.asked) == 1


def test_a_page_in_place_of_events_is_no_answer() -> None:
    with scripted_api(lambda *_: (200, b"<p>Sign in</p>"), Content_Type="text/html") as api:
        with Hocket(api.url, key="k") as hocket, pytest.raises(AnswerUnreadable, match="text/html"):
            list(hocket.follow("r"))
        assert len(api.asked) == 1


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "http://[::1",
        "http://h:port",
        "ftp://h",
        "http://h/?a",
        " ",
        "http://a..b",
        "http://.a",
        f"http://{'a' * 64}.example",
        "http://h\\@other",
        "http://h/a\\b",
        "http://\N{SNOWMAN}.example",
    ],
)
def test_what_is_not_the_url_of_a_platform_is_refused_at_once(url: str) -> None:
    for kind in (Hocket, AsyncHocket):
        with pytest.raises(InvalidInput, match="`url` is not valid: it is not the URL"):
            kind(url, key="k")


@pytest.mark.parametrize(
    "url",
    [
        "http://hocket.example",
        "https://a.b.:8443/hocket",
        "http://a_b",
        "http://[::1]:8080",
        "http://b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example",
        "http://h/p@q",
    ],
)
def test_the_url_of_a_platform_is_taken(url: str) -> None:
    assert Hocket(f"{url}/", key="k").url == url


@pytest.mark.parametrize("user", ["u:p", "u", ":p", ""])
def test_a_url_that_would_replace_the_key_is_refused_and_not_shown(user: str) -> None:
    for kind in (Hocket, AsyncHocket):
        with pytest.raises(InvalidInput, match="in place of the key") as refused:
            kind(f"http://{user}@hocket.example", key="k")
        assert "hocket.example" not in str(refused.value)


@pytest.mark.parametrize("user", ["u:p", "u", ":p", ""])
def test_a_key_that_is_found_would_be_replaced_as_well(
    monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.setenv("HOCKET_API_KEY", "k")
    with pytest.raises(InvalidInput, match="in place of the key"):
        Hocket(f"http://{user}@hocket.example")


def test_a_url_without_a_key_may_have_the_password_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOCKET_API_KEY", raising=False)
    sent: list[str | None] = []

    def proxy(asked: httpx2.Request) -> httpx2.Response:
        sent.append(asked.headers.get("Authorization"))
        return httpx2.Response(404, content=unknown("", None)[1])

    with Hocket("http://u:p@hocket.example", transport=httpx2.MockTransport(proxy)) as hocket:
        ask(hocket)
    assert sent == ["Basic dTpw"]


def test_a_run_is_asked_for_with_all_that_was_given() -> None:
    with (
        scripted_api(unknown) as api,
        Hocket(api.url, key="k") as hocket,
        pytest.raises(RequestRefused),
    ):
        hocket.run("greet", {"name": "Ada"}, priority="batch", deadline_ms=9, version=2)
    [(asked, body)] = api.asked
    assert asked == "POST /v1/runs"
    assert body.pop("idempotency_key")
    assert body == {
        "pipeline": "greet",
        "input": {"name": "Ada"},
        "class": "batch",
        "deadline_ms": 9,
        "version": 2,
    }
