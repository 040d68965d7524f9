"""`hocket dev` without a platform: how it ends, and how its workers do."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from hocket.cli.commands.platform import dev
from hocket.cli.local import development
from hocket.cli.local.development import Development
from hocket.cli.local.development_sources import Sources, WorkerProcesses
from hocket.cli.local.given_up_runs import LAST_S, MAX_UNKNOWN, PAUSES_S, GivenUpRuns
from hocket.cli.remote import task
from hocket.cli.remote.target import Target
from hocket.cli.remote.task import Task
from hocket.cli.terminal.errors import ApiRefused
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.pipeline.spec import Pipeline
from support.shared.scripted_api import Answer, as_json, refusal, scripted_api

BOUND_S = 60.0

STOPPED_BY = """
import asyncio, os, signal
from hocket.cli.local.development import until_signal

async def work(stopping):
    os.kill(os.getpid(), signal.{signal})
    await stopping.wait()
    print("stopped in order")

asyncio.run(until_signal(work))
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_it_stops_in_order_also_when_its_terminal_is_closed(signal: str) -> None:
    """Its workers have sessions of their own: the end of its terminal does not reach them."""
    code = STOPPED_BY.format(signal=signal)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"stopped in order\n")


async def test_a_worker_that_ends_by_itself_is_told_once(tmp_path: Path) -> None:
    """Its steps would otherwise wait, and nobody would know for what."""
    (tmp_path / "team.py").write_text("import os\nos._exit(7)\n")
    sources = Sources(tmp_path / "p.yaml", workers=("team:worker",), folder=tmp_path)
    workers = WorkerProcesses(sources, Target(tmp_path, named_nats="nats://127.0.0.1:1"))
    await workers.start()
    (process,) = workers._processes
    async with asyncio.timeout(BOUND_S):
        await process.wait()
    assert workers.ended() == ["team:worker ended with exit code 7"]
    assert workers.ended() == []
    await workers.stop()


async def test_a_platform_that_it_starts_uses_the_nats_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks would go to a server that no coordinator of the platform reads."""
    seen: dict[str, object] = {}

    def platform(*_: object, **given: object) -> None:
        seen.update(given)
        raise KeyboardInterrupt

    monkeypatch.setattr("hocket.cli.local.platform.Platform", platform)
    target = Target(tmp_path, named_nats="nats://a:4222")
    with pytest.raises(KeyboardInterrupt):
        await dev._with_platform(target, Sources(tmp_path / "p.yaml"), "", None)
    assert seen["nats_url"] == "nats://a:4222"


def test_it_waits_for_a_run_as_long_as_the_longest_may_take() -> None:
    """It ended with an error in its own code after a day, while a person's approval was waited for."""
    (longest,) = Pipeline.model_fields["slo_ms"].metadata[1:]
    assert longest.le < development.RUN_TIMEOUT_S * 1_000


RUN_ID = "r" + "0" * 24


class Queue:
    """A platform on which a task waits while `times` cancellations of its run are refused."""

    def __init__(self, times: float, status: int = 404, code: str = "run_unknown") -> None:
        self._times = times
        self._status = status
        self._code = code
        self.cancelled = self.asked = 0

    def answer(self, asked: str, _body: Any) -> Answer:
        assert asked == f"POST /v1/runs/{RUN_ID}/cancel"
        self.asked += 1
        self._times -= 1
        if self._times >= 0:
            return refusal(self._status, self._code, "Not now.")
        self.cancelled += 1
        return as_json(202, {"run_id": RUN_ID})

    async def give_up(self, folder: Path, *, last_s: float) -> None:
        """Change a file during a run, and then end the command."""
        with scripted_api(self.answer) as api:
            sources = Sources(folder / "p.yaml", folder=folder)
            development = Development(Target(folder, named_api=api.url), sources)
            development._given_up = GivenUpRuns(development._cancel, pauses_s=(0,), last_s=last_s)
            development._run_id = RUN_ID
            turn = asyncio.create_task(asyncio.sleep(3_600))
            await development._give_up(turn)
            await development._given_up.close()


@pytest.mark.parametrize(
    ("status", "code"), [(404, "run_unknown"), (429, "too_many_requests"), (503, "unavailable")]
)
async def test_a_run_that_has_not_begun_is_cancelled_as_it_begins(
    status: int, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It began after the change that gave it up, and went on beside the next one."""
    queue = Queue(3, status, code)
    await queue.give_up(tmp_path, last_s=BOUND_S)
    assert queue.cancelled == 1
    assert f"run {RUN_ID} is cancelled" in capsys.readouterr().err


async def test_a_run_that_cannot_be_cancelled_is_named_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await Queue(float("inf"), 503, "unavailable").give_up(tmp_path, last_s=0)
    assert f"hocket runs cancel {RUN_ID}" in capsys.readouterr().err


async def test_a_run_that_has_ended_meanwhile_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await Queue(float("inf"), 409, "run_not_open").give_up(tmp_path, last_s=BOUND_S)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("status", "code"), [(401, "key_invalid"), (403, "forbidden")])
async def test_a_run_that_may_not_be_cancelled_is_told_once_with_the_reason(
    status: int, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was said, and it went on beside the next one."""
    queue = Queue(float("inf"), status, code)
    await queue.give_up(tmp_path, last_s=BOUND_S)
    assert queue.asked == 1
    assert capsys.readouterr().err == (
        f"run {RUN_ID} is not cancelled: Not now. It goes on; cancel it with: hocket runs cancel "
        f"{RUN_ID}\n"
    )


async def test_a_run_that_stays_unknown_is_asked_for_a_while_and_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was asked for twice a second, until the command ended."""
    asked: list[str] = []

    async def cancel(run_id: str) -> None:
        asked.append(run_id)
        raise ApiRefused(ErrorInfo(code="run_unknown", message="It is unknown."), 404)

    runs = GivenUpRuns(cancel, pauses_s=(0,))
    await runs.add(RUN_ID)
    async with asyncio.timeout(BOUND_S):
        await asyncio.wait(runs._left.values())
    await runs.close()
    assert len(asked) == MAX_UNKNOWN
    assert capsys.readouterr().err.count(f"hocket runs cancel {RUN_ID}") == 1


def test_its_attempts_become_rare_and_take_ten_minutes() -> None:
    assert PAUSES_S[0] < PAUSES_S[-1] <= LAST_S
    between = [PAUSES_S[min(tries, len(PAUSES_S) - 1)] for tries in range(MAX_UNKNOWN - 1)]
    assert 590 < sum(between) < 620


@pytest.mark.parametrize("is_sent", [True, False], ids=["sent", "not sent"])
async def test_only_a_run_whose_task_was_sent_is_cancelled(
    is_sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that there would never be were asked for, and said to begin later."""
    began = asyncio.Event()

    async def for_ever(*_: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    @asynccontextmanager
    async def connected(_url: str) -> AsyncIterator[Mock]:
        if not is_sent:
            await for_ever()
        yield Mock(subscribe=AsyncMock())

    monkeypatch.setattr(task, "_connected", connected)
    monkeypatch.setattr(task, "_publish", for_ever)
    asked = await asked_for_given_up(tmp_path, began)
    assert asked == ([f"POST /v1/runs/{TASK.run_id}/cancel"] if is_sent else [])


TASK = Task(tenant="default", pipeline="p", input={})


async def asked_for_given_up(folder: Path, began: asyncio.Event) -> list[str]:
    """Give up a run once it has come so far; return what the API was asked."""
    nats_url = "nats://127.0.0.1:1"
    with scripted_api(lambda _asked, _body: as_json(202, {})) as api:
        target = Target(folder, named_api=api.url, named_nats=nats_url)
        developing = Development(target, Sources(folder / "p.yaml", folder=folder))
        turn = asyncio.create_task(developing._run(TASK))
        async with asyncio.timeout(BOUND_S):
            await began.wait()
        await developing._give_up(turn)
        await developing._given_up.close()
        return [asked for asked, _ in api.asked]
