"""What gateways tell each other of replicas, over a real NATS."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from hocket.gateway.warming import replica_news
from hocket.gateway.warming.replica_news import ReplicaNews
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import ReplicasUsed, RunsExpected

BOUND_S = 20.0


@dataclass
class Member:
    """A gateway's name, and whether it leads."""

    name: str
    leads: bool = False


@dataclass
class Heard:
    """What a gateway heard."""

    runs: asyncio.Queue[RunsExpected] = field(default_factory=asyncio.Queue)
    used: asyncio.Queue[ReplicasUsed] = field(default_factory=asyncio.Queue)


class Gateway:
    """The news of one gateway over replicas `a` and `b`."""

    def __init__(self, bus: Bus, member: Member) -> None:
        self.heard = Heard()
        self.usage = ReplicaUsage()
        self.usage.manage(frozenset({"a", "b"}))
        self.news = ReplicaNews(
            bus,
            member,  # type: ignore[arg-type]
            self.usage,
            now_ms=lambda: 1_500.0,
            expect=self.heard.runs.put_nowait,
            used=self.heard.used.put_nowait,
        )


@pytest.fixture
async def gateways(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Gateway, Gateway]]:
    monkeypatch.setattr(replica_news, "USED_S", 0.05)
    leader, other = Gateway(bus, Member("g1", leads=True)), Gateway(bus, Member("g2"))
    for one in (leader, other):
        await one.news.open()
    yield leader, other
    for one in (leader, other):
        await one.news.close()


async def test_the_gateway_that_leads_hears_what_others_use(
    gateways: tuple[Gateway, Gateway],
) -> None:
    leader, other = gateways
    leader.usage.began("b", 1_000.0)
    other.usage.began("a", 1_000.0)
    told = await asyncio.wait_for(leader.heard.used.get(), BOUND_S)
    assert (told.gateway, told.busy_ms, told.in_use) == ("g2", {"a": 500.0}, ("a",))
    assert other.heard.used.empty(), "it hears nothing of itself, and who leads tells nothing"


async def test_a_cold_replica_that_a_call_met_is_told_at_once(
    gateways: tuple[Gateway, Gateway],
) -> None:
    leader, other = gateways
    other.news.missed(["a", "b"])
    told = await asyncio.wait_for(leader.heard.used.get(), BOUND_S)
    assert (told.missed, told.busy_ms) == (("a", "b"), {})


async def test_runs_that_come_are_heard_and_what_is_no_message_is_passed_over(
    bus: Bus, gateways: tuple[Gateway, Gateway]
) -> None:
    expected = RunsExpected(
        tenant="acme", pipeline="p", version=1, accepted_at_ms=1_000.0, nodes=()
    )
    for subject in (subjects.RUNS_EXPECTED, subjects.REPLICAS_USED):
        bus.publish_nowait(subject, b"{")
    bus.publish_nowait(subjects.RUNS_EXPECTED, expected.model_dump_json().encode())
    for one in gateways:
        assert await asyncio.wait_for(one.heard.runs.get(), BOUND_S) == expected
        assert one.heard.used.empty()
