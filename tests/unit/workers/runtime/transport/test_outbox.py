"""Results that end side by side go in one message, and each has its own end."""

import asyncio
import json
from typing import Any

import pytest

from hocket.kit.nats.connection.durable_publisher import PubAck
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas.errors import PayloadTooLarge
from hocket.schemas.messages import AttemptFinished, read_log
from hocket.workers.runtime.transport.outbox import MAX_RESULTS, MAX_UNACKNOWLEDGED, Outbox

STORED = PubAck("LOG", 1, duplicate=False)


class Bus:
    """Stands for the bus: keeps posts; the test acknowledges them."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, bytes, str | None, asyncio.Future[PubAck]]] = []
        self.refuses: Exception | None = None

    def publish_durable(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> Any:
        if self.refuses is not None:
            raise self.refuses
        future: asyncio.Future[PubAck] = asyncio.get_running_loop().create_future()
        self.posts.append((subject, payload, msg_id, future))
        return future


class Acks:
    """Stands for the acknowledgements of steps that wait."""

    def send(self) -> None:
        pass


def outbox() -> tuple[Bus, Outbox]:
    bus = Bus()
    return bus, Outbox(bus, Acks())  # type: ignore[arg-type]


def result(number: int) -> bytes:
    return AttemptFinished(run_id="r", step=f"s{number}", attempt=1).model_dump_json().encode()


def steps_in(post: tuple[str, bytes, str | None, Any]) -> list[str]:
    events = read_log(post[0].rsplit(".", 1)[1], post[1])
    return [event.step for event in events if isinstance(event, AttemptFinished)]


async def posted_alone(box: Outbox, number: int) -> asyncio.Future[PubAck]:
    future = box.post(0, result(number), f"id{number}")
    await turn()
    return future


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_result_alone_keeps_its_id_so_that_a_repeat_is_known() -> None:
    bus, box = outbox()
    box.post(3, result(1), "r:s1:1:f")
    await turn()
    [(subject, payload, msg_id, _)] = bus.posts
    assert (subject, json.loads(payload)["step"]) == ("hocket.log.3.finished", "s1")
    assert msg_id == "r:s1:1:f"


async def test_results_of_one_turn_go_together_by_partition_under_no_result_s_id() -> None:
    bus, box = outbox()
    for number, partition in ((1, 0), (2, 1), (3, 0)):
        box.post(partition, result(number), f"id{number}")
    await turn()
    assert [(p[0], steps_in(p), p[2]) for p in bus.posts] == [
        ("hocket.log.0.results", ["s1", "s3"], None),
        ("hocket.log.1.finished", ["s2"], "id2"),
    ]


async def test_what_ends_meanwhile_waits_for_the_acknowledgement_and_goes_together() -> None:
    bus, box = outbox()
    first = [await posted_alone(box, number) for number in range(MAX_UNACKNOWLEDGED)]
    later = [box.post(0, result(number), f"id{number}") for number in (8, 9)]
    await turn()
    assert len(bus.posts) == MAX_UNACKNOWLEDGED
    bus.posts[0][3].set_result(STORED)
    await turn()
    assert await first[0] == STORED
    assert steps_in(bus.posts[-1]) == ["s8", "s9"]
    bus.posts[-1][3].set_result(STORED)
    assert await asyncio.gather(*later) == [STORED, STORED]


async def test_as_many_as_fit_do_not_wait() -> None:
    bus, box = outbox()
    for number in range(MAX_UNACKNOWLEDGED):
        await posted_alone(box, number)
    for number in range(MAX_RESULTS):
        box.post(0, result(number), f"id{number}")
    assert len(steps_in(bus.posts[-1])) == MAX_RESULTS


async def test_every_result_hears_that_its_message_failed() -> None:
    bus, box = outbox()
    futures = [box.post(0, result(number), f"id{number}") for number in (1, 2)]
    await turn()
    bus.posts[0][3].set_exception(BusUnavailable(reason="closed"))
    await turn()
    assert [str(future.exception()) for future in futures] == [str(bus.posts[0][3].exception())] * 2


async def test_a_message_that_the_bus_refuses_fails_its_results_and_not_the_loop() -> None:
    bus, box = outbox()
    bus.refuses = PayloadTooLarge(size_bytes=2, limit_bytes=1)
    future = box.post(0, result(1), "id1")
    with pytest.raises(PayloadTooLarge):
        await future
