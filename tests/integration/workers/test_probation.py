"""A function that ends its worker costs the steps beside it little: real processes, real deaths."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hocket.schemas import subjects
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.intake.after_worker_death import FREE_DELIVERIES
from hocket.workers.runtime.intake.probation import MAX_DEATHS_ALONE
from hocket.workers.runtime.transport.consumers import consumer_name, ensure_consumers
from hocket.workers.runtime.transport.probation_records import NOTHING, ProbationRecords, Record
from support.places import HANDLERS
from support.worker_rig import WAIT_S, Rig, attempt_id

ACK_WAIT_S = 1.0
INNOCENT = 3
KILLERS = 12
BOUND_S = 120.0


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    rig = await Rig.open(nats_url)
    yield rig
    await rig.close()


class Supervised:
    """A worker process that is started anew whenever it ends."""

    def __init__(self, nats_url: str, folder: Path, ack_wait_s: float = ACK_WAIT_S) -> None:
        self.deaths = 0
        self._ack_wait_s = ack_wait_s
        self._folder = folder
        self._environment = os.environ | {
            "NATS_URL": nats_url,
            "HOCKET_DATA_DIR": str(folder),
            "HOCKET_CONFIG": str(folder / "hocket.yaml"),
            "HOCKET_HANDLERS": "worker_handlers",
            "PYTHONPATH": HANDLERS,
        }

    async def run(self) -> None:
        (self._folder / "hocket.yaml").write_text(f"workers: {{ack_wait_s: {self._ack_wait_s}}}")
        command = (sys.executable, "-m", "hocket.workers", "--types", "python")
        while True:
            process = await asyncio.create_subprocess_exec(*command, env=self._environment)
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
                    await process.wait()
            self.deaths += 1


async def deliver_and_give_back(rig: Rig, steps: int, times: int) -> None:
    """Take the steps of the lane so many times, as workers do that end."""
    name = consumer_name("python", "normal")
    pull = await rig.bus.js.pull_subscribe_bind(consumer=name, stream=subjects.STEPS)
    for _ in range(times):
        taken: list[Any] = []
        while len(taken) < steps:
            taken += await pull.fetch(steps - len(taken), timeout=WAIT_S)
        for msg in taken:
            await msg.nak()
    await pull.unsubscribe()


async def test_a_function_that_ends_its_worker_is_found_and_those_beside_it_end_well(
    rig: Rig, tmp_path: Path
) -> None:
    await ensure_consumers(rig.bus, "python", ACK_WAIT_S)
    killer = await rig.send(config={"handler": "worker_handlers:die"})
    innocent = [
        await rig.send(config={"handler": "worker_handlers:take_a_while"}) for _ in range(INNOCENT)
    ]
    await deliver_and_give_back(rig, 1 + INNOCENT, FREE_DELIVERIES - 1)  # one death beside others
    worker = Supervised(rig.nats_url, tmp_path)
    supervising = asyncio.create_task(worker.run())
    try:
        for step in (killer, *innocent):
            await rig.result(step, within_s=BOUND_S)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    finally:
        supervising.cancel()
        await asyncio.wait({supervising})
    (ended,) = rig.results[attempt_id(killer)]
    assert ended.error is not None
    assert ended.error.code == "step_undeliverable"
    assert f"ended {MAX_DEATHS_ALONE} times" in ended.error.message
    assert worker.deaths == 1 + MAX_DEATHS_ALONE
    for step in innocent:
        (result,) = rig.results[attempt_id(step)]
        assert result.output == "well", result.error
    await rig.until_stream(subjects.DLQ, lambda messages: messages == 1)


async def test_what_an_ended_worker_held_comes_again_at_once_and_many_killers_end_two_workers_beside_it(
    rig: Rig, tmp_path: Path
) -> None:
    """... though each of them has its own configuration, and none was delivered often."""
    ack_wait_s = 2 * BOUND_S
    await ensure_consumers(rig.bus, "python", ack_wait_s)
    waits = {"handler": "worker_handlers:wait_in_first_delivery"}
    innocent = await rig.send(config=waits, input={"dir": str(tmp_path)}, timeout_ms=300_000)
    noted = asyncio.Event()

    async def on_note(msg: Any) -> None:
        if ".kind-" in msg.subject:
            noted.set()

    await rig.bus.subscribe(subjects.PROBATION_FILTER, on_note)
    worker = Supervised(rig.nats_url, tmp_path, ack_wait_s)
    supervising = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(BOUND_S):
            while not (tmp_path / "started-1").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            for number in range(KILLERS):
                config = {"handler": "worker_handlers:die", "with": {"n": number}}
                await rig.send(config=config, tenant="hostile")
            await noted.wait()
        assert worker.deaths == 2
        result = await rig.result(innocent, within_s=BOUND_S)
        assert result.output in ({"delivery": 2}, {"delivery": 3}), result.error
    finally:
        supervising.cancel()
        await asyncio.wait({supervising})


async def test_a_worker_that_stops_leaves_no_death_on_record(
    rig: Rig,
) -> None:
    """... however often: the step is given back each time, and then ends well."""
    begun = asyncio.Event()

    async def held(context: Context) -> Any:
        begun.set()
        await asyncio.Event().wait()

    async def well(context: Context) -> Any:
        return "well"

    await ensure_consumers(rig.bus, "python", 30.0)
    step = await rig.send()
    await deliver_and_give_back(rig, 1, FREE_DELIVERIES)
    records = ProbationRecords(rig.bus)
    for _ in range(MAX_DEATHS_ALONE + 1):
        begun.clear()
        async with rig.worker({"python": held}) as worker:
            async with asyncio.timeout(WAIT_S):
                await begun.wait()
            assert worker._free_slots() == {"python": 1}
            assert await records.read(step) == Record(1, 1)
        assert await records.read(step) == NOTHING
    async with rig.worker({"python": well}):
        assert (await rig.result(step)).output == "well"


async def test_what_stands_on_record_is_read_whatever_others_wrote_there(rig: Rig) -> None:
    records, step = ProbationRecords(rig.bus), rig.step()
    assert await records.read(step) == NOTHING
    await records.write(step, Record(3, 1))
    assert await records.read(step) == Record(3, 1)
    state = (await rig.bus.js.stream_info(subjects.PROBATION)).state
    sealed = (await rig.bus.js.get_msg(subjects.PROBATION, state.last_seq)).data or b""
    of_another = b"9 9 " + sealed.rpartition(b" ")[2]
    for junk in (b"", b"x", b"1", b"1 2", b"3 1", b"9" * 5000, b"\xff 1", b"99999 0", of_another):
        state = (await rig.bus.js.stream_info(subjects.PROBATION)).state
        known = await rig.bus.js.get_msg(subjects.PROBATION, state.last_seq)
        await rig.bus.publish(known.subject, junk)
        assert await records.read(step) == NOTHING
    await records.write(step, NOTHING)
    assert (await rig.bus.js.stream_info(subjects.PROBATION)).state.messages == 0
