"""Requests over the bus: each ends with its own answer, or says why there is none."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nats.aio.msg import Msg

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable

MANY = 500
BOUND_S = 20.0


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_url, name="test")
    yield bus
    await bus.close()


async def echo(bus: Bus, subject: str) -> None:
    async def answer(message: Msg) -> None:
        bus.respond(message.reply, message.data, {"Of": "echo"})

    await bus.subscribe(subject, answer)


async def test_each_of_many_has_its_own_answer(bus: Bus) -> None:
    await echo(bus, "echo")
    bodies = [str(number).encode() for number in range(MANY)]
    answers = await asyncio.gather(
        *(bus.request("echo", body, timeout_ms=BOUND_S * 1000) for body in bodies)
    )
    assert [answer.data for answer in answers] == bodies
    assert answers[0].headers == {"Of": "echo"}


async def test_where_nobody_listens_that_is_said_at_once(bus: Bus) -> None:
    with pytest.raises(BusUnavailable, match="nobody listens on nowhere"):
        await asyncio.wait_for(bus.request("nowhere", b"", timeout_ms=60_000), BOUND_S)


async def test_what_comes_late_or_twice_is_for_nobody(bus: Bus) -> None:
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def keep(message: Msg) -> None:
        asked.put_nowait(message.reply)

    await bus.subscribe("late", keep)
    with pytest.raises(BusUnavailable, match=r"late: no answer in 10 ms"):
        await bus.request("late", b"", timeout_ms=10)
    second = bus.ask("late", b"")
    first_reply, second_reply = await asked.get(), await asked.get()
    for body in (b"a", b"b"):
        bus.respond(first_reply, body)
        bus.respond(second_reply, body)
    assert (await asyncio.wait_for(second, BOUND_S)).data == b"a"
    await echo(bus, "echo")
    assert (await bus.request("echo", b"c", timeout_ms=BOUND_S * 1000)).data == b"c"


async def test_what_is_asked_while_the_server_is_away_is_asked_when_it_is_back(
    bus: Bus, servers: EmbeddedServers
) -> None:
    await echo(bus, "echo")
    back = asyncio.Event()
    bus.on_reconnect.append(back.set)
    await servers.nats.kill()
    async with asyncio.timeout(BOUND_S):
        while bus.connected and not back.is_set():  # noqa: ASYNC110 (told to nobody)
            await asyncio.sleep(0.001)
    answer = await bus.request("echo", b"kept", timeout_ms=BOUND_S * 1000)
    assert answer.data == b"kept"


async def test_a_question_ends_with_its_connection(nats_url: str) -> None:
    bus = await Bus.connect(nats_url, name="test")
    await bus.subscribe("silent", lambda _: asyncio.sleep(0))
    asked = bus.ask("silent", b"")
    await bus.close()
    for question in (asked, bus.ask("silent", b"")):
        with pytest.raises(BusUnavailable, match="the connection was closed"):
            await question


async def test_what_the_server_would_not_take_is_not_sent(bus: Bus) -> None:
    await echo(bus, "echo")
    with pytest.raises(BusUnavailable, match="limit"):
        await bus.request("echo", b"x" * (bus.nc.max_payload + 1), timeout_ms=1_000)
    assert (await bus.request("echo", b"small", timeout_ms=BOUND_S * 1000)).data == b"small"
