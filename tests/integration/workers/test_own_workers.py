"""Node types of somebody's own, run by `hocket.worker`, in this process and in one of their own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from hocket.schemas import subjects
from hocket.schemas.messages import StepRequested, TypeDescribed, WorkerAnnounced
from hocket.worker import Worker
from support.handlers.lead_worker import worker as leads
from support.places import HANDLERS
from support.worker_rig import Rig, attempt_id


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    rig = await Rig.open(nats_url)
    yield rig
    await rig.close()


async def send(rig: Rig, pool: str, **changes: Any) -> StepRequested:
    node_type, _, queue = pool.partition("@")
    step = rig.step(type=node_type, queue=queue or None, **changes)
    body = step.model_dump_json().encode()
    await rig.bus.publish(subjects.step(pool, "normal"), body, msg_id=attempt_id(step))
    return step


class Ear:
    """What workers say of themselves."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Msg] = asyncio.Queue()

    async def until_announced(self, slots: dict[str, int]) -> None:
        async with asyncio.timeout(90):
            while True:
                msg = await self.heard.get()
                if msg.subject != subjects.WORKER_ANNOUNCED:
                    continue
                if WorkerAnnounced.model_validate_json(msg.data).slots == slots:
                    return

    async def until_described(self, node_type: str) -> TypeDescribed:
        async with asyncio.timeout(90):
            while True:
                msg = await self.heard.get()
                if msg.subject == subjects.WORKER_DESCRIBED:
                    found = TypeDescribed.model_validate_json(msg.data)
                    if found.type == node_type:
                        return found


@pytest.fixture
async def ear(rig: Rig) -> Ear:
    ear = Ear()
    await rig.bus.subscribe("hocket.worker.*", ear.heard.put)
    return ear


async def test_a_function_of_ones_own_runs_the_steps_of_its_type(rig: Rig, ear: Ear) -> None:
    async with leads.run(nats_url=rig.nats_url):
        described = await ear.until_described("crm.lookup")
        found = await send(rig, "crm.lookup", input={"email": "ada@x.org"}, config={"region": "us"})
        plain = await send(rig, "crm.lookup", input={"email": "bob@x.org"})
        scored = await send(rig, "crm.score", input={"email": "c@x.org", "score": 4})
        bad = await send(rig, "crm.lookup", input={"email": "d@x.org", "score": -1})
        worse = await send(rig, "crm.lookup", input={"email": "e@x.org"}, config={"region": 7})
        later = await send(rig, "crm.lookup", input={"email": "later"})
        assert (await rig.result(found)).output == {"name": "ada", "region": "us"}
        assert (await rig.result(plain)).output == {"name": "bob", "region": "eu"}
        assert (await rig.result(scored)).output == 5
        errors = [(await rig.result(step)).error for step in (bad, worse, later)]
    assert [error.code for error in errors if error] == [
        "invalid_input", "invalid_input", "retryable",
    ]  # fmt: skip
    assert errors[0] is not None
    assert "`input.score`" in errors[0].message
    assert errors[1] is not None
    assert "`config.region`" in errors[1].message
    assert (described.version, described.concurrency, described.timeout_ms) == ("2", 8, 2_000)
    assert described.description == "Find the person behind a lead."
    assert described.input is not None
    assert described.input["properties"]["score"]["minimum"] == 0
    assert described.config is not None
    assert described.config["properties"]["region"]["default"] == "eu"
    assert described.output is not None
    assert described.output["required"] == ["name", "region"]


async def test_a_worker_takes_the_steps_of_its_queues_and_no_others(rig: Rig, ear: Ear) -> None:
    gpu = Worker(queues=("gpu",))

    @gpu.node("ml.embed", concurrency=2)
    async def embed(text: str) -> str:
        return f"gpu: {text}"

    async with gpu.run(nats_url=rig.nats_url, name="of-the-queue"):
        await ear.until_announced({"ml.embed@gpu": 2})
        own = await send(rig, "ml.embed", input="own")
        other = await send(rig, "ml.embed@cpu", input="other")
        mine = await send(rig, "ml.embed@gpu", input="mine")
        assert (await rig.result(mine)).output == "gpu: mine"
        assert not rig.results[attempt_id(own)]
        assert not rig.results[attempt_id(other)]
    await ear.until_announced({})
    async with gpu.run(nats_url=rig.nats_url, queues=("default", "cpu")):
        assert (await rig.result(own)).output == "gpu: own"
        assert (await rig.result(other)).output == "gpu: other"


async def test_a_process_of_its_own_drains_on_sigterm(rig: Rig, ear: Ear) -> None:
    environment = os.environ | {"NATS_URL": rig.nats_url, "PYTHONPATH": HANDLERS}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.worker.command", "lead_worker:worker", "--name", "sdk-1",
        env=environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await ear.until_announced({"crm.lookup": 8, "crm.score": 16, "crm.wait": 16})
        slow = await send(rig, "crm.wait", input=0.5)
        quick = await send(rig, "crm.lookup", input={"email": "ada@x.org"})
        assert (await rig.result(quick)).worker == "sdk-1"
        process.send_signal(signal.SIGTERM)
        assert (await rig.result(slow)).output == "waited"
        output, _ = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
    events = [json.loads(line)["event"] for line in output.splitlines()]
    assert events == ["worker_started", "worker_drained"]


STUBBORN = """
import asyncio
from hocket.worker import Worker
worker = Worker()
@worker.node("crm.stubborn", timeout_ms=500)
async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""


async def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_process(
    rig: Rig, ear: Ear, tmp_path: Path
) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.worker.command", "stubborn:worker", "--drain-s", "1",
        env=os.environ | {"NATS_URL": rig.nats_url, "PYTHONPATH": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await ear.until_announced({"crm.stubborn": 16})
        step = await send(rig, "crm.stubborn", timeout_ms=500)
        error = (await rig.result(step)).error
        assert error is not None
        assert error.code == "attempt_timeout"
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
    assert b"tasks_not_stopped" in output


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("lead_worker", "it has no `:`"),
        ("no.such:worker", "there is no module `no.such` here"),
        ("lead_worker:nothing", "`lead_worker` has no `nothing`"),
        ("lead_worker:lookup", "it is a function"),
    ],
)
async def test_what_is_no_worker_is_told(named: str, reason: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.worker.command", named,
        env=os.environ | {"PYTHONPATH": HANDLERS}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, told = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert reason in told.decode()


async def test_a_changed_file_starts_the_worker_anew(rig: Rig, ear: Ear, tmp_path: Path) -> None:
    text = "from hocket.worker import Worker\n\nworker = Worker()\nworker.node('a.{}')(lambda: 1)\n"
    (tmp_path / "package.py").write_text(text.format("before"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.worker.command", "package:worker", "--reload",
        cwd=tmp_path, env=os.environ | {"NATS_URL": rig.nats_url},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await ear.until_announced({"a.before": 16})
        (tmp_path / "package.py").write_text(text.format("after_it"))
        await ear.until_announced({"a.after_it": 16})
        process.send_signal(signal.SIGTERM)
        await ear.until_announced({})
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()


async def test_ctrl_c_lets_running_steps_end_under_reload_too(
    rig: Rig, ear: Ear, tmp_path: Path
) -> None:
    """A terminal sends it to all processes in the foreground: to the one that reloads and the worker."""
    (tmp_path / "package.py").write_text(
        "import asyncio\nfrom hocket.worker import Worker\n\nworker = Worker()\n\n"
        "@worker.node('a.slow')\nasync def slow() -> int:\n"
        "    open('began', 'w').close()\n    await asyncio.sleep(1.5)\n    return 7\n"
    )
    os.mkfifo(tmp_path / "began")  # the step begins when the test reads it
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.worker.command", "package:worker", "--reload",
        cwd=tmp_path, env=os.environ | {"NATS_URL": rig.nats_url}, start_new_session=True,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await ear.until_announced({"a.slow": 16})
        step = await send(rig, "a.slow", input={})
        await asyncio.to_thread((tmp_path / "began").read_bytes)
        os.killpg(process.pid, signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert (await rig.result(step)).output == 7
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
