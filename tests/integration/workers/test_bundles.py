"""Several steps in one message on a real NATS: each is as if it had come alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.msg import Msg

from hocket.schemas import subjects
from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import AttemptReturned, StepRequested
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.worker import Worker
from hocket.workers.runtime.intake import arrivals
from support.worker_rig import Journal, Rig, attempt_id, eventually, recorded


class Returned:
    """Hears which attempts come back by the log."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.changed = asyncio.Event()

    async def heard(self, msg: Msg) -> None:
        returned = AttemptReturned.model_validate_json(msg.data)
        self.names.append(f"{returned.run_id}:{returned.step}:{returned.attempt}")
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.names) < count:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    rig = await Rig.open(nats_url)
    yield rig
    await rig.close()


@pytest.fixture
async def returned(rig: Rig) -> Returned:
    returned = Returned()
    await rig.bus.subscribe("hocket.log.*.returned", returned.heard)
    return returned


@pytest.fixture
def journal() -> Journal:
    return Journal()


async def send(rig: Rig, inputs: list[Any], *more: bytes, **changes: Any) -> list[StepRequested]:
    """Publish steps in one message, and whatever else in the place of one."""
    steps = [rig.step(input=given, **changes) for given in inputs]
    first, *others = [step.model_dump_json().encode() for step in steps]
    body = first[:-1].replace(b',"more":[],', b",") + b',"more":[%b]}' % b",".join([*others, *more])
    await rig.bus.publish(
        subjects.step("python", "normal"), body, msg_id=f"{attempt_id(steps[0])}:{len(steps)}"
    )
    return steps


def held(worker: Worker, step: StepRequested) -> Any:
    return worker._pools[0].attempts.find(attempt_id(step))


def slow_ones_wait(journal: Journal) -> Any:
    async def handler(context: Context) -> Any:
        if context.input == "slow":
            await journal.release.wait()
        return context.input

    return recorded(journal, handler)


async def test_a_slow_step_delays_no_other_and_the_message_stays_until_all_have_ended(
    rig: Rig, journal: Journal
) -> None:
    async with rig.worker({"python": slow_ones_wait(journal)}):
        quick, slow, last = await send(rig, [1, "slow", 3])
        for step in (quick, last):
            result = await rig.result(step)
            assert (result.output, result.took, result.delivery) == (step.input, 3, 1)
        assert not rig.results[attempt_id(slow)]
        assert (await rig.bus.js.stream_info(subjects.STEPS)).state.messages == 1
        journal.release.set()
        assert (await rig.result(slow)).output == "slow"
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)


async def test_one_step_of_a_bundle_is_cancelled_and_the_others_are_not(
    rig: Rig, journal: Journal
) -> None:
    async with rig.worker({"python": slow_ones_wait(journal)}):
        one, other = await send(rig, ["slow", "slow"])
        await journal.until(lambda: journal.running == 2)
        rig.cancel(other)
        error = (await rig.result(other)).error
        assert error is not None
        assert error.error_class is ErrorClass.CANCELLED
        journal.release.set()
        assert (await rig.result(one)).output == "slow"


async def test_what_cannot_be_read_of_a_bundle_is_buried_alone(rig: Rig) -> None:
    letters: list[bytes] = []

    async def heard(msg: Msg) -> None:
        letters.append(msg.data)

    await rig.bus.subscribe("hocket.dlq.step.*", heard)

    async def echo(context: Context) -> Any:
        return context.input

    async with rig.worker({"python": echo}):
        one, other = await send(rig, [1, 2], b'{"run_id":"r9","step":"x"}')
        assert [(await rig.result(step)).output for step in (one, other)] == [1, 2]
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    assert [json.loads(letter) for letter in letters] == [{"run_id": "r9", "step": "x"}]


async def test_a_bundle_that_comes_again_to_its_worker_is_held_still(
    rig: Rig, journal: Journal, returned: Returned
) -> None:
    async with rig.worker({"python": slow_ones_wait(journal)}) as worker:
        quick, slow = await send(rig, [1, "slow"])
        await rig.result(quick)
        message = held(worker, slow).message
        first = message.ack_subject
        rig.bus.publish_nowait(first, b"-NAK")

        async def came_again() -> bool:
            return bool(message.ack_subject != first)

        await eventually(came_again)
        journal.release.set()
        await rig.result(slow)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    assert (journal.started[quick.run_id], journal.started[slow.run_id]) == (1, 1)
    assert returned.names == []


async def test_a_bundle_whose_worker_fell_silent_goes_back_to_the_log(
    rig: Rig, journal: Journal, returned: Returned
) -> None:
    """The coordinator hands out again what has not ended of it."""
    async with rig.worker({"python": slow_ones_wait(journal)}, name="one") as one:
        steps = await send(rig, [1, "slow"])
        await rig.result(steps[0])
        ack_subject = held(one, steps[1]).ack_subject
        await one._pools[0].stop_fetching()
        async with rig.worker({"python": slow_ones_wait(journal)}, name="other"):
            rig.bus.publish_nowait(ack_subject, b"-NAK")
            await returned.until(2)
            await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
        journal.release.set()
        await rig.result(steps[1])
    assert sorted(returned.names) == sorted(map(attempt_id, steps))
    assert journal.started[steps[0].run_id] == 1


async def test_a_worker_that_drains_gives_back_what_of_a_bundle_has_not_ended(
    rig: Rig, journal: Journal, returned: Returned
) -> None:
    async with rig.worker({"python": slow_ones_wait(journal)}):
        quick, slow = await send(rig, [1, "slow"])
        await rig.result(quick)
    assert returned.names == [attempt_id(slow)]
    await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)


async def test_what_finds_no_slot_goes_back_and_the_rest_is_run(
    rig: Rig, journal: Journal, returned: Returned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "PASS_ON_S", 0.05)
    async with rig.worker({"python": slow_ones_wait(journal)}, slots=2):
        steps = await send(rig, ["slow"] * 5)
        await returned.until(3)
        journal.release.set()
        ran = [step for step in steps if attempt_id(step) not in returned.names]
        for step in ran:
            await rig.result(step)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    assert len(ran) == 2
    assert journal.peak == 2


async def test_a_step_that_also_comes_alone_is_run_once(rig: Rig, journal: Journal) -> None:
    async with rig.worker({"python": slow_ones_wait(journal)}) as worker:
        one, other = await send(rig, ["slow", "slow"])
        await journal.until(lambda: journal.running == 2)
        await rig.bus.publish(
            subjects.step("python", "normal"),
            other.model_dump_json().encode(),
            msg_id=attempt_id(other),
        )

        async def has_a_message_of_its_own() -> bool:
            return not held(worker, other).message.is_bundle

        await eventually(has_a_message_of_its_own)
        journal.release.set()
        for step in (one, other):
            await rig.result(step)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    assert journal.started[other.run_id] == 1
