"""Large answers are parsed in a thread, and only once, so that the event loop goes on."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx2
import pytest
from pydantic import AfterValidator, BaseModel

from hocket.client import AnswerUnreadable, AsyncHocket, Hocket, RequestRefused
from hocket.client.beside_loop import LARGE_BYTES, async_read_answer, async_read_event
from hocket.client.live import RunStream
from hocket.client.requests import MAX_NESTED, read_answer
from hocket.schemas.rest import RunDetail, RunResult

URL = "http://hocket.example"
MOMENT = "2026-01-01T00:00:00Z"
ROWS = [{"id": i, "name": "a text", "score": i / 7, "none": None} for i in range(6_000)]
ENDED = {
    "run_id": "r",
    "tenant": "t",
    "pipeline": "p",
    "version": 1,
    "status": "succeeded",
    "output": {"rows": ROWS},
    "accepted_at": MOMENT,
    "finished_at": MOMENT,
    "deadline_at": MOMENT,
    "duration_ms": 1.0,
    "met_deadline": True,
    "spent_usd": "0.02",
    "class": "standard",
    "trace_id": "0" * 32,
    "input": {},
}
BODY = json.dumps(ENDED).encode()


def waits_for_the_loop(value: str) -> str:
    assert loop_went_on.wait(30)
    return value


loop_went_on = threading.Event()


class Waiting(BaseModel):
    run_id: Annotated[str, AfterValidator(waits_for_the_loop)]


@pytest.fixture(autouse=True)
def not_yet() -> None:
    loop_went_on.clear()


async def test_the_loop_goes_on_while_a_large_answer_is_parsed() -> None:
    assert len(BODY) > LARGE_BYTES
    reading = asyncio.create_task(async_read_answer(Waiting, URL, 200, BODY))
    await asyncio.sleep(0)
    loop_went_on.set()
    assert (await reading).run_id == "r"


async def test_the_loop_goes_on_while_a_large_event_is_parsed() -> None:
    stream = RunStream("/", {"run": Waiting})
    reading = asyncio.create_task(async_read_event(stream, URL, "run", BODY.decode()))
    await asyncio.sleep(0)
    loop_went_on.set()
    assert (await reading).run_id == "r"


async def test_a_client_parses_a_large_answer_beside_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def noted(*args: Any, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return read_answer(*args, **options)

    monkeypatch.setattr("hocket.client.beside_loop.read_answer", noted)
    answers = [BODY, json.dumps({**ENDED, "output": None}).encode()]
    api = httpx2.MockTransport(lambda _: httpx2.Response(200, content=answers.pop(0)))
    async with AsyncHocket(URL, key="k", transport=api) as hocket:
        assert (await hocket.runs.get("r")).output == {"rows": ROWS}
        assert (await hocket.runs.get("r")).output is None
    own = threading.get_ident()
    assert [thread == own for thread in threads] == [False, True]


def test_a_large_answer_needs_none_of_the_threads_that_wait_for_it() -> None:
    async def asked() -> RunDetail:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        async with AsyncHocket(URL, key="k", transport=api) as hocket:

            def waiting() -> RunDetail:
                return asyncio.run_coroutine_threadsafe(hocket.runs.get("r"), loop).result(30)

            return await asyncio.to_thread(waiting)

    api = httpx2.MockTransport(lambda _: httpx2.Response(200, content=BODY))
    assert asyncio.run(asked()).output == {"rows": ROWS}  # a loop of its own: others need threads


def test_a_forked_process_has_threads_of_its_own() -> None:
    loop_went_on.set()

    def read() -> str:
        run_id: str = asyncio.run(async_read_answer(Waiting, URL, 200, BODY)).run_id
        return run_id

    assert read() == "r"
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # it would wait without end
        try:
            os._exit(0 if read() == "r" else 1)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("kind", [RunDetail, RunResult, RunResult | Waiting, dict[str, Any]])
def test_an_answer_reads_the_same_in_a_thread(kind: Any) -> None:
    loop_went_on.set()
    read = read_answer(kind, URL, 200, BODY, in_thread=True)
    assert read == read_answer(kind, URL, 200, BODY)
    assert type(read) is type(read_answer(kind, URL, 200, BODY))
    if isinstance(read, RunResult):
        assert read.finished_at == datetime(2026, 1, 1, tzinfo=UTC)


def body_with(output: str, encoding: str = "utf-8") -> bytes:
    ended = json.dumps({**ENDED, "output": None})
    return ended.replace('"output": null', f'"output": {output}').encode(encoding, "surrogatepass")


def in_lists(levels: int) -> str:
    """As many lists, each in the next one, in one object."""
    return '{"a": ' + "[" * levels + "1" + "]" * levels + "}"


@pytest.mark.parametrize(
    "body",
    [
        body_with('{"a": "\\ud83d"}'),
        body_with('{"a": "\\uDE00"}'),
        body_with('{"\\ud83d": 1}'),
        body_with('{"a": "\ud83d"}'),
        body_with("{}", "utf-16"),
        body_with(in_lists(MAX_NESTED - 1)),
        body_with(in_lists(500)),
    ],
    ids=["half", "other half", "in a name", "bytes", "utf-16", "nested", "nested deep"],
)
def test_what_pydantic_refuses_is_refused_in_a_thread_too(body: bytes) -> None:
    for in_thread in (False, True):
        with pytest.raises(AnswerUnreadable, match="Invalid JSON"):
            read_answer(RunDetail, URL, 200, body, in_thread=in_thread)


@pytest.mark.parametrize(
    "output",
    ['{"a": "\\ud83d\\ude00"}', '{"a": "\\\\ud83d"}', in_lists(MAX_NESTED - 2)],
    ids=["both halves", "backslash", "nested"],
)
def test_what_pydantic_takes_is_taken_in_a_thread_too(output: str) -> None:
    read = read_answer(RunDetail, URL, 200, body_with(output), in_thread=True)
    assert read.output == json.loads(output)
    assert read == read_answer(RunDetail, URL, 200, body_with(output))


def test_other_threads_get_turns_while_an_answer_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither Pydantic nor `json` lets them run by itself, only where it calls Python."""
    turns: list[str] = []

    def noted(name: str, does: Callable[[Any], Any]) -> None:
        def function(value: Any) -> Any:
            turns.append(name)
            return does(value)

        monkeypatch.setattr(f"hocket.client.requests.{name}", function)

    noted("_unchanged", lambda value: value)
    noted("_as_float", float)
    noted("_as_int", int)
    assert read_answer(RunResult, URL, 200, BODY, in_thread=True).output == {"rows": ROWS}
    assert turns.count("_unchanged") == len(ROWS) + 3
    assert turns.count("_as_float") == len(ROWS) + 1
    assert turns.count("_as_int") == len(ROWS) + 1


@pytest.mark.parametrize(
    "body",
    [b"[" * 300_000, b'{"run_id": "r", "x": ' + b"9" * 300_000, b"\xff" * 300_000, b"[]"],
    ids=["nested", "digits", "bytes", "other"],
)
def test_a_large_answer_that_is_not_the_apis_is_said_to_be_so(body: bytes) -> None:
    with pytest.raises(AnswerUnreadable, match="answered 200"):
        read_answer(RunDetail, URL, 200, body, in_thread=True)


async def test_a_large_refusal_is_one() -> None:
    problem: dict[str, Any] = {"error": {"code": "x", "message": "m" * LARGE_BYTES}, "code": "x"}
    problem |= {"title": "t", "status": 422, "detail": "d"}
    with pytest.raises(RequestRefused):
        await async_read_answer(None, URL, 422, json.dumps(problem).encode())


def api_of_an_ended_run(asked: httpx2.Request) -> httpx2.Response:
    """Its event is of a kind that no client can parse."""
    if asked.url.path.endswith("/events"):
        events = (
            'id: 1\nevent: step\ndata: {"not": "a step"}\n\nevent: run\ndata: {"no": "run"}\n\n'
        )
        return httpx2.Response(200, text=events, headers={"Content-Type": "text/event-stream"})
    return httpx2.Response(200, content=BODY)


async def test_a_result_that_is_waited_for_is_parsed_once() -> None:
    api = httpx2.MockTransport(api_of_an_ended_run)
    with Hocket(URL, key="k", transport=api) as hocket:
        assert hocket.result("r").output == {"rows": ROWS}
    async with AsyncHocket(URL, key="k", transport=api) as hocket:
        assert (await hocket.result("r")).output == {"rows": ROWS}
