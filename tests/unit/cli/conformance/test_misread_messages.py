"""A worker whose messages are not what the protocol says fails its check, which shows the message."""

import asyncio
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.cli.conformance import checks, play
from hocket.cli.conformance.stage import NODE_TYPE, Heard, NotSeen, Result, Stage, slots_of
from hocket.kit.blobs import FileBlobs
from hocket.schemas import subjects
from hocket.schemas.messages import StepRequested

FINISHED = "hocket.log.1.finished"


def heard(subject: str, body: Any) -> Heard:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Heard(1, 0.0, subject, data, {})


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, ["worker"])


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"\xff",
        b"[" * 100_000,
        [1],
        {"slots": [1]},
        {"slots": {NODE_TYPE: "many"}},
        {"slots": {NODE_TYPE: None}},
        b'{"slots": {"conformance.step": Infinity}}',
    ],
    ids=["text", "bytes", "deep", "list", "slots", "words", "null", "infinite"],
)
def test_an_announcement_that_is_none_is_shown(body: Any) -> None:
    one = heard(subjects.WORKER_ANNOUNCED, body)
    with pytest.raises(
        NotSeen, match=r"a message on hocket\.worker\.announced is not what"
    ) as told:
        slots_of(one)
    assert repr(one.data[:20])[:-1] in str(told.value)
    assert len(str(told.value)) < 1_500


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        (FINISHED, b"oops, not JSON"),
        (FINISHED, ["a"]),
        ("hocket.log.1.results", {}),
        ("hocket.log.1.results", {"results": ["a"]}),
    ],
    ids=["text", "list", "none", "texts"],
)
def test_a_result_that_is_none_is_shown(stage: Stage, subject: str, body: Any) -> None:
    stage.heard.append(heard(subject, body))
    step = cast(StepRequested, SimpleNamespace(run_id="r"))
    with pytest.raises(NotSeen, match=f"a message on {subject} is not what the protocol says"):
        stage.results(step)


def test_a_message_without_a_field_that_a_check_reads_is_shown(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(stage: Stage) -> None:
        stage.heard += [heard(FINISHED, {"error": {}}), heard("$JS.ACK.STEPS.x", b"+ACK")]
        stage.heard[0].json()["error"]["error_class"]

    monkeypatch.setitem(play.EVERY, "classes", check)
    with pytest.raises(NotSeen, match=rf"KeyError: 'error_class'.* on {FINISHED}, .*b'\{{"):
        asyncio.run(play._played(stage, "classes"))


@pytest.mark.parametrize("with_task", [False, True])
def test_the_message_that_a_check_read_is_named_and_none_that_came_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, with_task: bool
) -> None:
    one, other = (heard(FINISHED, {"run_id": name, "error": {"code": name}}) for name in "ab")
    announced = heard(subjects.WORKER_ANNOUNCED, {"slots": {NODE_TYPE: 4}})

    async def check(stage: Stage) -> None:
        stage.heard += [one, other, announced]
        step = cast(StepRequested, SimpleNamespace(run_id="a"))
        if with_task:
            asyncio.get_running_loop().call_soon(slots_of, announced)
            await asyncio.create_task(stage.result(step))
        checks._error(stage.results(step)[0])["error_class"]

    stage._changed = asyncio.Event()
    monkeypatch.setitem(play.EVERY, "classes", check)
    with pytest.raises(NotSeen, match=f"KeyError: 'error_class'.* on {FINISHED}, ") as told:
        asyncio.run(play._played(stage, "classes"))
    assert repr(one.data) in str(told.value)


def test_a_fault_of_a_check_that_read_no_message_is_none_of_the_worker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.heard.append(heard(FINISHED, {}))

    async def check(_stage: Stage) -> None:
        raise KeyError("wrong")

    monkeypatch.setitem(play.EVERY, "wrong", check)
    with pytest.raises(KeyError, match="wrong"):
        asyncio.run(play._played(stage, "wrong"))


@pytest.mark.parametrize("name", ["0" * 64, "nope", "../../../etc/passwd", 5])
def test_an_output_that_names_no_blob_fails_its_check_only(
    name: object, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = iter([100_000, {"$blob": name, "size": 1, "type": "text"}])
    stage.blobs = FileBlobs(tmp_path / "blobs")

    async def sent(_task: Any) -> None:
        return None

    async def result(_step: Any) -> Result:
        body = {"output": next(outputs)}
        return Result(body, heard(FINISHED, body))

    monkeypatch.setattr(stage, "send", sent)
    monkeypatch.setattr(stage, "result", result)
    with pytest.raises((AssertionError, NotSeen), match="blob"):
        asyncio.run(play._played(stage, "blobs"))


def test_a_worker_that_never_announces_itself_does_not_live_on(tmp_path: Path) -> None:
    """Its messages would be taken for those of the next check's worker."""

    async def played() -> list[int | None]:
        stage = Stage(tmp_path, ["sleep", "600"])
        stage._processes = []
        stage.server = cast(Any, SimpleNamespace(url="nats://127.0.0.1:1"))
        purged = SimpleNamespace(purge_stream=lambda _: asyncio.sleep(0))
        stage.bus = cast(Any, SimpleNamespace(js=purged))
        started: list[asyncio.subprocess.Process] = []

        async def fails(*_: Any) -> None:
            started.extend(stage._processes)
            raise NotSeen("an announcement did not arrive")

        cast(Any, stage).until = fails
        assert "did not arrive" in str(await play._fault(stage, "announces"))
        codes = [one.returncode for one in started]
        await stage.stop_all()
        return codes

    assert asyncio.run(played()) == [-signal.SIGKILL]
