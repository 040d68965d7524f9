"""Results that end side by side go in one message, and each has its own end."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, NamedTuple

from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.identity import Identity
from hocket.schemas.errors import PayloadTooLarge
from hocket.schemas.messages import AttemptFinished, read_log
from hocket.workers.runtime.transport.outbox import MAX_RESULTS, MAX_UNACKNOWLEDGED, Outbox

STORED = PubAck("LOG", 1, duplicate=False)


class Bus:
    """Stands for the bus: keeps posts; the test acknowledges them."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, bytes, str | None, asyncio.Future[PubAck]]] = []
        self.refuses: Exception | None = None
        self.identity = Identity()

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


class Attempt(NamedTuple):
    """Stands for an attempt: what an outbox reads of it."""

    step: SimpleNamespace
    posted: SimpleNamespace


class Box:
    """An outbox, and how the results of its attempts ended (None: the log has them)."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.ends: dict[str, str | None] = {}
        self._outbox = Outbox(self.bus, Acks())  # type: ignore[arg-type]

    def post(self, partition: int, number: int) -> None:
        attempt: Any = Attempt(
            SimpleNamespace(partition=partition), SimpleNamespace(msg_id=f"id{number}")
        )
        finished = AttemptFinished(run_id="r", step=f"s{number}", attempt=1)
        self._outbox.post(finished.model_dump_json().encode(), attempt, self._posted)

    def _posted(self, attempt: Any, failure: str | None) -> None:
        self.ends[attempt.posted.msg_id] = failure


def steps_in(post: tuple[str, bytes, str | None, Any]) -> list[str]:
    events = read_log(post[0].rsplit(".", 1)[1], post[1])
    return [event.step for event in events if isinstance(event, AttemptFinished)]


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def box_with_as_many_under_way_as_may_be() -> Box:
    box = Box()
    for number in range(MAX_UNACKNOWLEDGED):
        box.post(0, number)
        await turn()
    return box


async def test_a_result_alone_keeps_its_id_so_that_a_repeat_is_known() -> None:
    box = Box()
    box.post(3, 1)
    await turn()
    [(subject, payload, msg_id, _)] = box.bus.posts
    assert (subject, json.loads(payload)["step"]) == ("hocket.log.3.finished", "s1")
    assert msg_id == "id1"


async def test_a_guest_posts_where_only_its_key_does() -> None:
    box = Box()
    box.bus.identity = Identity("guest", "_INBOX.key.0123456789ab")
    box.post(3, 1)
    await turn()
    assert box.bus.posts[0][0] == "hocket.guest.result.0123456789ab"


async def test_results_of_one_turn_go_together_by_partition_under_no_result_s_id() -> None:
    box = Box()
    for number, partition in ((1, 0), (2, 1), (3, 0)):
        box.post(partition, number)
    await turn()
    assert [(p[0], steps_in(p), p[2]) for p in box.bus.posts] == [
        ("hocket.log.0.results", ["s1", "s3"], None),
        ("hocket.log.1.finished", ["s2"], "id2"),
    ]


async def test_what_ends_meanwhile_waits_for_the_acknowledgement_and_goes_together() -> None:
    box = await box_with_as_many_under_way_as_may_be()
    for number in (8, 9):
        box.post(0, number)
    await turn()
    assert len(box.bus.posts) == MAX_UNACKNOWLEDGED
    assert box.ends == {}
    box.bus.posts[0][3].set_result(STORED)
    await turn()
    assert box.ends == {"id0": None}
    assert steps_in(box.bus.posts[-1]) == ["s8", "s9"]
    box.bus.posts[-1][3].set_result(STORED)
    await turn()
    assert box.ends == {"id0": None, "id8": None, "id9": None}


async def test_as_many_as_fit_do_not_wait() -> None:
    box = await box_with_as_many_under_way_as_may_be()
    for number in range(MAX_RESULTS):
        box.post(0, number)
    assert len(steps_in(box.bus.posts[-1])) == MAX_RESULTS


async def test_every_result_hears_that_its_message_failed() -> None:
    box = Box()
    box.post(0, 1)
    box.post(0, 2)
    await turn()
    failure = BusUnavailable(reason="closed")
    box.bus.posts[0][3].set_exception(failure)
    await turn()
    assert box.ends == {"id1": str(failure), "id2": str(failure)}


async def test_a_message_that_the_bus_refuses_fails_its_results_and_not_the_loop() -> None:
    box = Box()
    box.bus.refuses = PayloadTooLarge(size_bytes=2, limit_bytes=1)
    box.post(0, 1)
    await turn()
    assert box.ends == {"id1": str(box.bus.refuses)}
