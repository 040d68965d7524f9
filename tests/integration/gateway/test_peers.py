"""Several gateways: a call asked again is made once, and one whose gateway was killed is known."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry

from hocket.gateway.api import peers
from hocket.gateway.api.nats import NatsDoor
from hocket.gateway.api.peers import Peers
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.calls.call_key import CallKey, digest
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import (
    Attribution,
    CallCancelled,
    CallReply,
    CallRequest,
    ChatMessage,
    StepCancelled,
)
from support.gateway.gateway_process import Gateway, call, opened, records, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream
from support.gateway.routing_rig import NOW_MS, Rig, backend, says

BOUND_S = 60.0
ASKED = 24
"""So often that not all of them go to one of two gateways."""


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        running.answer = running.hangs
        yield running


def models(upstream: Upstream) -> dict[str, Any]:
    prices = {"input_usd_per_mtok": "2", "output_usd_per_mtok": "8"}
    backend = {"name": "b", "base_url": upstream.base_url, "model": "m", "prices": prices}
    return {"writer": {"backends": [backend]}}


def request() -> CallRequest:
    return CallRequest(
        call_id="r1:draft:1:1:1",
        model="writer",
        messages=(ChatMessage(role="user", content="How often?"),),
        deadline_at_ms=clock.now_ms() + BOUND_S * 1000,
        attribution=Attribution(pipeline="report", run_id="r1", node="draft", step="draft"),
    )


async def begun(bus: Bus, upstream: Upstream) -> "asyncio.Task[CallReply]":
    """Ask for the call, and wait until it is at its backend."""
    asking = asyncio.create_task(call(bus, request()))
    await asyncio.wait_for(upstream.called.wait(), BOUND_S)
    return asking


async def until_opened(bus: Bus) -> None:
    """Wait until the call's announcement is stored."""
    async with asyncio.timeout(BOUND_S):
        while not await opened(bus):  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.01)


async def test_a_call_asked_again_at_another_gateway_is_not_made_twice(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    async with running_gateway(nats_url, folders[0], models(upstream)):
        asking = await begun(bus, upstream)
        async with running_gateway(nats_url, folders[1], models(upstream)) as second:
            # each goes to either of the two, by the server's dice
            again = [asyncio.create_task(call(bus, request(), again=True)) for _ in range(ASKED)]
            await second.logged("call_held_elsewhere")
            upstream.release.set()
            replies = await asyncio.gather(asking, *again)
            booked = [one.call_id for one in await records(bus)]
    assert [reply.text for reply in replies] == ["tidal"] * (1 + ASKED)
    assert (len(upstream.bodies), booked) == (1, ["r1:draft:1:1:1"])


@dataclass
class Living:
    """Which gateways live."""

    name: str
    names: set[str]

    @property
    def live(self) -> frozenset[str]:
        return frozenset(self.names)


class Nothing:
    """Has no call."""

    async def find(self, _key: CallKey, _question: str | None) -> None:
        return None


def untold(_reply_to: str, _reply: CallReply) -> None:
    raise AssertionError("no call was held")


async def test_once_all_gateways_have_said_no_a_call_is_held_by_nobody(
    bus: Bus, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "HELD_TIMEOUT_MS", 1_000 * BOUND_S)  # nobody waits for it
    registry = cast("CallRegistry", Nothing())
    living = {"one", "two", "three"}
    buses = [bus, *[await Bus.connect(nats_url, name=name) for name in ("two", "three")]]
    gateways = [
        Peers(each, registry, untold, Living(name, living))
        for each, name in zip(buses, ("one", "two", "three"), strict=True)
    ]
    inbox = bus.nc.new_inbox()
    for gateway in gateways[:2]:
        await gateway.open()
    holding = asyncio.create_task(gateways[0].hold(request(), inbox))
    done, _ = await asyncio.wait({holding}, timeout=0.5)
    assert not done, "the third has not answered, and is waited for"
    holding.cancel()
    await gateways[2].open()
    assert not await gateways[0].hold(request(), inbox)
    living.discard("three")  # it has ended just now, or so it seems after a crash of NATS
    await gateways[2].close()
    holding = asyncio.create_task(gateways[0].hold(request(), inbox))
    done, _ = await asyncio.wait({holding}, timeout=0.5)
    assert not done
    holding.cancel()
    monkeypatch.setattr(peers, "LATELY_S", 0.0)
    assert not await gateways[0].hold(request(), inbox)
    for gateway in gateways[:2]:
        await gateway.close()
    for each in buses[1:]:
        await each.close()


async def test_a_gateway_that_comes_back_later_than_others_is_heard(
    bus: Bus, nats_url: str
) -> None:
    class Holder:
        """Has a call that is being made."""

        async def find(self, key: CallKey, question: str | None) -> "asyncio.Future[CallReply]":
            assert (key, question) == (CallKey.of(request()), digest(request()))
            return asyncio.get_running_loop().create_future()

    questions: list[bytes] = []
    asked = asyncio.Event()

    async def overheard(message: Msg) -> None:
        questions.append(message.data)
        asked.set()

    late = await Bus.connect(nats_url, name="late")
    listening = await bus.subscribe(subjects.GATEWAY_HELD, overheard)
    one = Peers(bus, cast("CallRegistry", None), untold, Living("one", {"one", "other"}))
    other = Peers(late, cast("CallRegistry", Holder()), untold, Living("other", {"one", "other"}))
    try:
        holding = asyncio.create_task(one.hold(request(), bus.nc.new_inbox()))
        await asyncio.wait_for(asked.wait(), BOUND_S)
        await other.open()
        assert await asyncio.wait_for(holding, BOUND_S)
        assert len(set(questions)) == 1 < len(questions)
    finally:
        await listening.unsubscribe()
        await other.close()
        await late.close()


STOPPED = {
    "by its caller": (subjects.GATEWAY_CANCEL, CallCancelled(call_id="r1:draft:1:1:1")),
    "with its step": (subjects.CANCEL_FILTER, StepCancelled(run_id="r1", step="draft")),
}


@pytest.mark.parametrize("how", STOPPED)
async def test_a_call_stopped_while_the_other_gateways_are_asked_for_it_is_not_made(
    bus: Bus, how: str
) -> None:
    """Its caller waits no more, and a backend that is asked for it is paid for nothing."""
    rig = Rig({"writer": {"backends": [backend("a")]}}, a=says("tidal"))
    registry = CallRegistry(rig.calls, GatewayMetrics(CollectorRegistry()))
    living = Living("one", {"one", "silent"})  # the silent one is waited for
    door = NatsDoor(bus, registry, living)
    mine = request().model_copy(update={"deadline_at_ms": NOW_MS + BOUND_S * 1000})
    who = Attribution(run_id="r2", step="draft")
    other = mine.model_copy(update={"call_id": "r2:draft:1:1:1", "attribution": who})
    asked = asyncio.Event()

    async def overheard(_: Msg) -> None:
        asked.set()

    listening = await bus.subscribe(subjects.GATEWAY_HELD, overheard)
    await door.open()
    try:
        # two workers ask for the first call, as after a crash of NATS
        calls = [asyncio.create_task(call(bus, one, again=True)) for one in (mine, mine, other)]
        await asyncio.wait_for(asked.wait(), BOUND_S)
        subject, stop = STOPPED[how]
        bus.publish_nowait(subject, stop.model_dump_json().encode())
        replies = await asyncio.wait_for(asyncio.gather(*calls), BOUND_S)
    finally:
        await door.stop_accepting()
        await door.close()
        await listening.unsubscribe()
    codes = [None if reply.error is None else reply.error.code for reply in replies]
    assert codes == ["call_cancelled", "call_cancelled", None]
    assert [record.call_id for record in rig.records] == ["r2:draft:1:1:1"]


async def test_a_call_whose_gateway_was_killed_is_known_and_made_again_under_its_own_id(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    async def killed(gateway: Gateway) -> None:
        os.kill(gateway.process.pid, signal.SIGKILL)
        await gateway.process.wait()

    async with running_gateway(nats_url, tmp_path, models(upstream)) as first:
        asking = await begun(bus, upstream)
        await killed(first)
    asking.cancel()
    await until_opened(bus)
    assert (await opened(bus), await records(bus)) == (["r1:draft:1:1:1"], [])
    upstream.release.set()
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        reply = await call(bus, request(), again=True)
        (booked,) = await records(bus)
    assert (reply.text, reply.call_id) == ("tidal", "r1:draft:1:1:1")
    assert booked.call_id == "r1:draft:1:1:1:t1"
    assert await opened(bus) == ["r1:draft:1:1:1", "r1:draft:1:1:1:t1"]


async def test_an_announcement_that_a_killed_server_lost_is_made_again(
    upstream: Upstream, tmp_path: Path
) -> None:
    async with EmbeddedServers(tmp_path / "servers", postgres=False) as servers:
        bus = await Bus.connect(servers.nats_url, name="test")
        await ensure_streams(bus)
        async with running_gateway(servers.nats_url, tmp_path, models(upstream)) as gateway:
            asking = await begun(bus, upstream)
            await until_opened(bus)
            await bus.js.delete_stream(subjects.CALLS)
            await ensure_streams(bus)
            assert await opened(bus) == []
            await servers.nats.kill()
            await servers.nats.wait_ready()
            await gateway.logged("bus_reconnected")
            await until_opened(bus)
            assert await opened(bus) == ["r1:draft:1:1:1"]
            asking.cancel()
            upstream.release.set()
        await bus.close()
