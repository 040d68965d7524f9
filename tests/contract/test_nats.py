"""What the product needs from a NATS server: the real one and the simulated one behave the same.

Each scene runs against both. It uses the product's own bus, log reader and bucket, and the real client.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NotFoundError

from hocket.coordinator.partition.events import log_reader
from hocket.coordinator.partition.events.log_reader import LogMessage, LogPosition, LogReader
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.nats.kv.entry import RevisionPassed
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects

Scene = Callable[[str], Awaitable[None]]
Play = Callable[[Scene], None]
TASK = "hocket.task.t.p"
STEP = "hocket.step.python.normal"
WAIT_S = 20.0
LOOKS = 500


class Inbox:
    """The messages of a subject, in order of arrival."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Any] = asyncio.Queue()

    async def take(self, message: Any) -> None:
        await self.messages.put(message)

    async def next(self) -> Any:
        return await asyncio.wait_for(self.messages.get(), WAIT_S)


async def opened(url: str, name: str = "contract") -> Bus:
    bus = await Bus.connect(url, name=name)
    await ensure_streams(bus)
    return bus


async def emptied(bus: Bus, but_for: int = 0) -> None:
    """Wait until only `but_for` steps are left: the real server handles acknowledgements with a delay.
    x"""
    for _ in range(LOOKS):
        left = (await bus.js.stream_info(subjects.STEPS)).state.messages
        if left == but_for:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{left} steps are left")


async def pulling(bus: Bus, **config: Any) -> tuple[Inbox, Callable[..., Any]]:
    """Create a pull consumer of STEPS; return the inbox for its messages, and a function that requests
    them."""
    await bus.js.add_consumer(
        subjects.STEPS,
        ConsumerConfig(
            **{
                "name": "c",
                "durable_name": "c",
                "filter_subject": STEP,
                "ack_policy": AckPolicy.EXPLICIT,
                "ack_wait": 0.5,
            }
            | config
        ),
    )
    inbox, subject = Inbox(), bus.nc.new_inbox()
    await bus.subscribe(subject, inbox.take)

    async def ask(batch: int = 1, expires_s: float = 5.0, **more: Any) -> None:
        body = {"batch": batch, "expires": int(expires_s * 1e9), **more}
        await bus.nc.publish(
            "$JS.API.CONSUMER.MSG.NEXT.STEPS.c", json.dumps(body).encode(), reply=subject
        )

    return inbox, ask


async def until(bucket: Bucket, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            bucket.changed.clear()
            await bucket.changed.wait()


def ack_tokens(message: Any) -> tuple[int, int, int, int]:
    """Return delivery count, stream sequence, consumer sequence, and the number of pending messages."""
    words = message.reply.split(".")
    assert words[:2] == ["$JS", "ACK"]
    count, stream_seq, consumer_seq, _, left = words[-5:] if len(words) == 9 else words[-7:-2]
    return int(count), int(stream_seq), int(consumer_seq), int(left)


def test_a_post_with_a_known_id_is_the_same_message(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        first = await bus.publish(TASK, b"{}", msg_id="a")
        again = await bus.publish(TASK, b"{}", msg_id="a")
        other = await bus.publish(TASK, b"{}", msg_id="b")
        assert (first.duplicate, again.duplicate, other.duplicate) == (False, True, False)
        assert (again.seq, other.seq) == (first.seq, first.seq + 1)
        await bus.close()

    play(scene)


def test_a_step_comes_to_one_who_asked_and_leaves_when_acknowledged(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        inbox, ask = await pulling(bus, ack_wait=30)
        await ask()
        await bus.publish(STEP, b"one", msg_id="s1", headers={"k": "v"})
        await bus.publish(STEP, b"two", msg_id="s2")
        message = await inbox.next()
        assert (message.data, message.headers["k"]) == (b"one", "v")
        assert message.headers["Nats-Msg-Id"] == "s1"
        assert ack_tokens(message) == (1, 1, 1, 0)
        assert inbox.messages.empty()
        bus.ack(message.reply)
        await ask()
        assert (await inbox.next()).data == b"two"
        await emptied(bus, but_for=1)
        with pytest.raises(NotFoundError):
            await bus.js.get_msg(subjects.STEPS, 1)
        await bus.close()

    play(scene)


def test_what_is_not_acknowledged_comes_again(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        inbox, ask = await pulling(bus)
        await bus.publish(STEP, b"one")
        await ask(batch=3)
        first = await inbox.next()
        again = await inbox.next()
        assert (ack_tokens(first)[0], ack_tokens(again)[0]) == (1, 2)
        bus.publish_nowait(again.reply, b"-NAK")
        third = await inbox.next()
        assert ack_tokens(third)[0] == 3
        bus.ack(first.reply)  # of an earlier delivery: it counts all the same
        await emptied(bus)
        await bus.close()

    play(scene)


def test_what_is_in_work_does_not_come_again(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        inbox, ask = await pulling(bus, ack_wait=1.5)
        await bus.publish(STEP, b"one")
        await ask(batch=2, idle_heartbeat=250_000_000)
        first = await inbox.next()
        for _ in range(8):  # longer than the ack wait, as measured by the request's heartbeats
            beat = await inbox.next()
            assert beat.headers["Status"] == "100"
            bus.publish_nowait(first.reply, b"+WPI")
        while (again := await inbox.next()).data == b"":  # once there is no more progress report
            assert again.headers["Status"] == "100"
        assert ack_tokens(again)[0] == 2
        await bus.close()

    play(scene)


def test_a_step_that_is_given_up_for_good_leaves(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        inbox, ask = await pulling(bus)
        await bus.publish(STEP, b"one")
        await ask()
        bus.publish_nowait((await inbox.next()).reply, b"+TERM")
        await emptied(bus)
        await bus.close()

    play(scene)


def test_the_server_tells_of_a_step_that_was_delivered_too_often(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        advisories = Inbox()
        await bus.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.STEPS.>", advisories.take)
        inbox, ask = await pulling(bus, max_deliver=2)
        await bus.publish(STEP, b"one")
        await ask(batch=5)
        await inbox.next()
        await inbox.next()
        told = json.loads((await advisories.next()).data)
        assert (told["stream_seq"], told["consumer"], told["deliveries"]) == (1, "c", 2)
        stored = await bus.js.get_msg(subjects.STEPS, 1)
        assert stored.data == b"one"
        assert await bus.js.delete_msg(subjects.STEPS, 1)
        await bus.close()

    play(scene)


def test_a_request_that_is_not_served_ends_with_what_is_missing(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        inbox, ask = await pulling(bus)
        await ask(batch=3, expires_s=0.5, idle_heartbeat=200_000_000)
        beat = await inbox.next()
        assert beat.headers["Status"] == "100"
        while (ended := await inbox.next()).headers["Status"] == "100":
            pass
        assert ended.headers["Status"] == "408"
        assert ended.headers["Nats-Pending-Messages"] == "3"
        await bus.close()

    play(scene)


def test_requests_of_somebody_who_has_left_get_nothing(play: Play) -> None:
    async def scene(url: str) -> None:
        gone = await opened(url, "gone")
        _, ask = await pulling(gone, ack_wait=20)
        await ask(batch=5)
        await gone.nc.flush()
        await gone.close()
        bus = await opened(url)
        inbox, ask = await pulling(bus, ack_wait=20)
        await bus.publish(STEP, b"one")
        await ask()
        assert (await inbox.next()).data == b"one"
        await bus.close()

    play(scene)


def test_tasks_are_shared_by_those_who_take_them_in(play: Play) -> None:
    async def scene(url: str) -> None:
        bus, other = await opened(url), await opened(url, "other")
        taken = Inbox()
        for each in (bus, other):
            await each.js.subscribe(
                subjects.TASK_FILTER,
                queue="intake",
                durable="intake",
                stream=subjects.TASKS,
                cb=taken.take,
                manual_ack=True,
                config=ConsumerConfig(
                    ack_policy=AckPolicy.EXPLICIT, ack_wait=30, max_ack_pending=100
                ),
            )
        for number in range(20):
            await bus.publish(TASK, b"%d" % number)
        got = {(await taken.next()).data for _ in range(20)}
        assert taken.messages.empty()
        assert got == {b"%d" % number for number in range(20)}
        await bus.close()
        await other.close()

    play(scene)


async def nothing() -> None:
    """What is to be done before reading goes on."""


def test_a_log_is_read_in_order_from_any_place(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        for number in range(5):
            await bus.publish(subjects.log(0, "timer"), b"%d" % number, msg_id=f"m{number}")
            await bus.publish(subjects.log(1, "timer"), b"other")
        read = Inbox()
        again = asyncio.Event()

        async def rewound() -> None:
            again.set()

        async def reading(seq: int, msg_id: str, inbox: Inbox = read) -> asyncio.Task[None]:
            reader = LogReader(
                bus,
                0,
                handle=inbox.take,
                rewound=rewound,
                resumes=nothing,
                position=LogPosition(seq, msg_id),
            )
            return asyncio.create_task(reader.run())

        first = await reading(0, "")
        got: list[LogMessage] = [await read.next() for _ in range(5)]
        assert [message.body for message in got] == [b"0", b"1", b"2", b"3", b"4"]
        assert [message.seq for message in got] == [1, 3, 5, 7, 9]
        first.cancel()
        second = await reading(got[2].seq, got[2].msg_id)
        assert (await read.next()).body == b"3"
        await bus.publish(subjects.log(0, "timer"), b"5")
        assert [(await read.next()).body for _ in range(2)] == [b"4", b"5"]
        assert not again.is_set()
        second.cancel()
        third = await reading(got[2].seq, "another message was here")
        assert (await read.next()).body == b"0"
        assert again.is_set()
        third.cancel()
        again.clear()
        msg_id, at_us = got[2].msg_id.split("@")
        last = Inbox()
        fourth = await reading(got[2].seq, f"{msg_id}@{int(at_us) - 1}", last)
        assert (await last.next()).body == b"0"
        assert again.is_set(), "the same message came to that place at another time"
        fourth.cancel()
        await asyncio.wait({first, second, third, fourth})
        await bus.close()

    play(scene)


def test_a_log_is_applied_up_to_its_last_message_and_once_quiet_up_to_a_later_time(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "HEARTBEAT_S", 0.2)

    async def scene(url: str) -> None:
        bus = await opened(url)
        read, go_on = Inbox(), asyncio.Event()

        async def rewound() -> None:
            return

        async def handle(message: LogMessage) -> None:
            await read.take(message)
            await go_on.wait()

        position = LogPosition(0, "")
        reader = LogReader(
            bus, 0, handle=handle, rewound=rewound, resumes=nothing, position=position
        )
        reading = asyncio.create_task(reader.run())
        await bus.publish(subjects.log(0, "timer"), b"0")
        message: LogMessage = await read.next()
        assert position.applied_ms == 0.0
        go_on.set()
        async with asyncio.timeout(10 * WAIT_S):
            while position.applied_ms < message.at_ms:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            while position.applied_ms == message.at_ms:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert position.applied_ms > message.at_ms
        reading.cancel()
        await asyncio.wait({reading})
        await bus.close()

    play(scene)


def test_a_quiet_log_is_told_to_live(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        inbox, subject = Inbox(), bus.nc.new_inbox()
        await bus.subscribe(subject, inbox.take)
        config = {
            "name": "quiet",
            "deliver_subject": subject,
            "deliver_policy": "all",
            "ack_policy": "none",
            "max_deliver": 1,
            "filter_subject": subjects.log_of(0),
            "idle_heartbeat": 300_000_000,
            "mem_storage": True,
            "num_replicas": 1,
        }
        request = {"stream_name": subjects.LOG, "config": config, "action": "create"}
        await bus.publish(subjects.log(0, "timer"), b"x")
        await bus.api("CONSUMER.CREATE.LOG.quiet", request, timeout_ms=5_000)
        assert (await inbox.next()).data == b"x"
        beat = await inbox.next()
        assert (beat.data, beat.headers["Status"]) == (b"", "100")
        assert beat.headers["Nats-Last-Consumer"] == "1"
        await bus.close()

    play(scene)


def test_nobody_listens_is_said_at_once(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        with pytest.raises(BusUnavailable, match="nobody listens"):
            await bus.request("nobody.here", b"", timeout_ms=4_000)
        await bus.close()

    play(scene)


def test_one_of_a_group_answers_and_all_others_hear(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        asked: list[str] = []

        def answering(name: str) -> Any:
            async def answer(message: Any) -> None:
                asked.append(name)
                bus.publish_nowait(message.reply, name.encode())

            return answer

        for name in ("a", "b"):
            await bus.subscribe("service.*", answering(name), queue="service")
        listener = Inbox()
        await bus.subscribe("service.>", listener.take)
        answers = {(await bus.request("service.x", b"", timeout_ms=4_000)).data for _ in range(12)}
        assert answers <= {b"a", b"b"}
        assert len(asked) == 12
        assert listener.messages.qsize() == 12
        await bus.close()

    play(scene)


def test_a_missing_stream_is_not_found(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        with pytest.raises(NotFoundError):
            await bus.js.stream_info("NOT_THERE")
        with pytest.raises(NotFoundError):
            await bus.js.get_msg(subjects.LOG, 77)
        with pytest.raises(APIError):
            await bus.js.delete_msg(subjects.LOG, 77)
        await bus.close()

    play(scene)


def test_a_stream_tells_its_bounds_and_its_clock(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        for _ in range(3):
            await bus.publish(subjects.log(0, "timer"), b"x")
        info = await bus.api("STREAM.INFO.LOG", {}, timeout_ms=5_000)
        state = info["state"]
        assert (state["first_seq"], state["last_seq"], state["messages"]) == (1, 3, 3)
        assert info["ts"].endswith("Z")
        await bus.close()

    play(scene)


def test_a_key_is_written_by_who_knows_its_revision(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        bucket = Bucket(bus, "contract")
        async with bucket.watching():
            await until(bucket, lambda: bucket.current_since_s > float("-inf"))
            first = await bucket.put("a", b"1", revision=0)
            with pytest.raises(RevisionPassed):
                await bucket.put("a", b"2", revision=0)
            second = await bucket.put("a", b"2", revision=first)
            await bucket.put("b", b"x")
            await bucket.put("b", None)
            await until(bucket, lambda: "b" in bucket.entries and not bucket.entries["b"].value)
            entry = bucket.entries["a"]
            assert (entry.value, entry.revision) == (b"2", second)
        late = Bucket(bus, "contract")
        async with late.watching():
            await until(late, lambda: late.current_since_s > float("-inf"))
            assert late.entries["a"].value == b"2"
        await bus.close()

    play(scene)


def test_a_consumer_is_the_same_when_it_is_made_again(play: Play) -> None:
    async def scene(url: str) -> None:
        bus = await opened(url)
        inbox, ask = await pulling(bus)
        await bus.publish(STEP, b"one")
        await ask()
        bus.ack((await inbox.next()).reply)
        await pulling(bus)
        await bus.publish(STEP, b"two")
        await ask()
        assert (await inbox.next()).data == b"two"
        await bus.close()

    play(scene)
