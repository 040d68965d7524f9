"""A reload replaces the manager of a replica: its time is counted once, and without a gap."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.config.routes import Routes
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.warming.warm_leases import Level, Startup
from hocket.gateway.core.warming.warm_rule import Action
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.warming import coordination
from hocket.gateway.warming.coordination import Warming
from hocket.gateway.warming.replica_state import ReplicaState
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.gateway.warming.state_exchange import StateExchange
from hocket.schemas.messages import WarmRecord

NOW_MS = 1_800_000_000_000.0
TURNS = 50
"""After so many turns of the loop, everybody has done what can be done at the time of the clock."""


@dataclass
class Membership:
    """A gateway that leads; `heard` has what it knows of the bucket, where it has `written`."""

    written: dict[str, Any] = field(default_factory=dict)
    heard: dict[str, Any] = field(default_factory=dict)
    hears_late: bool = False
    leads: bool = True
    is_unreachable: bool = False
    """Whether nothing can be written, and who tries finds that it leads no more."""
    live: tuple[str, ...] = ("one",)
    name: str = "one"

    async def put(self, key: str, content: Any) -> int | None:
        await asyncio.sleep(0)
        if self.is_unreachable:
            self.leads = False
            return None
        self.written[key] = content
        if not self.hears_late:
            self.heard[key] = content
        return 2 if self.hears_late else 1

    def told(self, prefix: str) -> Iterator[tuple[str, int, Any]]:
        yield from ((key, 1, one) for key, one in self.heard.items() if key.startswith(prefix))

    def is_overwritten(self, key: str) -> bool:
        return False

    def observe(self, look: Any) -> None:
        """Nothing is looked at by itself."""


class Ready:
    """A driver of a server that is always ready."""

    async def do(self, action: Action, *, timeout_ms: float) -> None:
        """There is nothing to do."""

    async def ready(self) -> bool | None:
        return True

    async def close(self) -> None:
        await asyncio.sleep(0)


class Gateway:
    """The warming of a gateway whose configuration is reloaded."""

    def __init__(self, membership: Membership) -> None:
        self.now_ms = NOW_MS
        self.records: list[WarmRecord] = []
        self.registry = CollectorRegistry()
        self.warming = Warming(
            Mock(),
            cast(Any, membership),
            Mock(),
            now_ms=lambda: self.now_ms,
            usage=ReplicaUsage(),
            book=self.records.append,
            metrics=GatewayMetrics(self.registry),
        )

    async def uses(self, **timeouts_ms: int) -> None:
        """Use the replicas of these names."""
        self.reload(**timeouts_ms)
        await self.settled()

    def reload(self, **timeouts_ms: int) -> None:
        ways = {action: ["true"] for action in ("load", "unload", "ready")}
        warm = {"exec": ways, "tier": "hot", "usd_per_hour": 3_600}
        table = parse(
            {
                name: {
                    "backends": [{"name": name, "timeout_ms": timeout_ms, "warm": warm} | SERVER]
                }
                for name, timeout_ms in timeouts_ms.items()
            },
            {},
        )
        self.warming.use(Routes(table, cast(Any, {spec.key: None for spec in table.backends()})))

    async def passes(self, seconds: float) -> None:
        self.now_ms += seconds * 1_000
        for manager in self.warming.managers.values():
            manager.look()
        await self.settled()

    async def settled(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def held_ms(self) -> float:
        """Return the time that the ledger has: of records with the same id, it keeps the first."""
        kept: dict[str, WarmRecord] = {}
        for one in self.records:
            kept.setdefault(one.call_id, one)
        return sum(one.to_at_ms - one.from_at_ms for one in kept.values())

    def level(self, backend: str) -> float | None:
        labels = {"backend": backend}
        return self.registry.get_sample_value("hocket_gateway_warm_level", labels)


SERVER = {"base_url": "http://x/v1", "model": "m"}


@pytest.fixture(autouse=True)
def drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination, "build_driver", lambda spec, served: Ready())


@pytest.mark.parametrize("hears_late", [False, True], ids=["heard at once", "heard late"])
async def test_no_time_is_lost_or_counted_twice_when_a_reload_changes_a_replica(
    hears_late: bool,
) -> None:
    membership = Membership()
    gateway = Gateway(membership)
    await gateway.uses(w=1_000)
    await gateway.passes(20)
    membership.hears_late = hears_late
    await gateway.passes(5)
    await gateway.uses(w=2_000)
    assert gateway.warming.managers["w"].level is Level.READY
    await gateway.passes(20)
    await gateway.passes(3)
    await gateway.warming.close()
    assert gateway.held_ms() == 48_000
    assert len({one.call_id for one in gateway.records}) == len(gateway.records)


async def test_no_time_is_lost_when_a_reload_follows_another_at_once() -> None:
    gateway = Gateway(Membership())
    await gateway.uses(w=1_000)
    await gateway.passes(5)
    gateway.reload(w=2_000)
    gateway.reload()
    gateway.reload(w=3_000)
    await gateway.uses(w=4_000)
    await gateway.passes(6)
    await gateway.warming.close()
    assert gateway.held_ms() == 11_000


async def test_the_next_leader_counts_from_where_a_gateway_that_left_did() -> None:
    membership = Membership()
    former = Gateway(membership)
    await former.uses(w=1_000)
    await former.passes(5)
    await former.warming.close()
    ((_, told),) = membership.written.items()
    assert told["accounted_ms"] == NOW_MS + 5_000


async def test_a_gateway_that_lost_the_lead_tells_and_records_nothing() -> None:
    membership = Membership()
    former = Gateway(membership)
    await former.uses(w=1_000)
    await former.passes(20)
    await former.passes(5)
    membership.leads = False
    before, recorded = dict(membership.written), list(former.records)
    await former.warming.close()
    assert membership.written == before
    assert former.records == recorded, "the next leader records it"


async def test_no_time_is_lost_or_counted_twice_when_a_gateway_does_not_lead_during_a_reload() -> (
    None
):
    membership = Membership()
    gateway = Gateway(membership)
    await gateway.uses(w=1_000)
    await gateway.passes(20)
    await gateway.passes(10)
    membership.leads = False
    gateway.reload(w=2_000)
    await gateway.settled()
    await gateway.passes(2)
    membership.leads = True
    await gateway.passes(3)
    await gateway.passes(20)
    await gateway.warming.close()
    assert gateway.held_ms() == 55_000
    assert sum(one.to_at_ms - one.from_at_ms for one in gateway.records) == 55_000


async def loses_the_lead_as_it_closes(membership: Membership, gateway: Gateway) -> None:
    """Replace the manager, which has recorded 30 s but told only 20 s of it."""
    await gateway.uses(w=1_000)
    await gateway.passes(20)
    await gateway.passes(10)
    membership.is_unreachable = True
    await gateway.uses(w=2_000)
    membership.is_unreachable = False


async def test_what_a_manager_left_is_kept_until_its_gateway_leads_again() -> None:
    membership = Membership()
    gateway = Gateway(membership)
    await loses_the_lead_as_it_closes(membership, gateway)
    await gateway.passes(2)
    membership.leads = True
    await gateway.passes(3)
    await gateway.passes(20)
    await gateway.warming.close()
    assert sum(one.to_at_ms - one.from_at_ms for one in gateway.records) == 55_000


async def test_what_a_manager_left_is_not_used_if_another_gateway_has_led_since() -> None:
    membership = Membership()
    gateway = Gateway(membership)
    await loses_the_lead_as_it_closes(membership, gateway)
    ((key, told),) = membership.heard.items()
    membership.heard[key] = told | {"accounted_ms": NOW_MS + 40_000}
    await gateway.passes(15)
    membership.leads = True
    await gateway.passes(3)
    await gateway.warming.close()
    ours = [one for one in gateway.records if one.from_at_ms >= NOW_MS + 30_000]
    assert [(one.from_at_ms, one.to_at_ms) for one in ours] == [(NOW_MS + 40_000, NOW_MS + 48_000)]


async def test_a_replica_that_another_gateway_has_released_since_costs_nothing() -> None:
    membership = Membership()
    gateway = Gateway(membership)
    await loses_the_lead_as_it_closes(membership, gateway)
    ((key, told),) = membership.heard.items()
    membership.heard[key] = told | {"accounted_ms": 0.0, "level": int(Level.COLD)}
    recorded = len(gateway.records)
    await gateway.passes(7_200)
    membership.leads = True
    await gateway.passes(3)
    await gateway.passes(20)
    await gateway.warming.close()
    records = gateway.records[recorded:]
    assert records, "the server is found ready"
    assert min(one.from_at_ms for one in records) >= NOW_MS + 7_230_000


async def test_a_state_that_was_left_is_old_even_if_the_present_one_is_as_it_was_before() -> None:
    membership = Membership()
    (ours, left), (theirs, released), (next_ones, state) = (replica(membership) for _ in range(3))
    ours.lead()
    left.move(Level.READY)  # which nobody was told
    handed = ours.state()
    theirs.lead()
    for level in (Level.READY, Level.COLD):
        released.move(level)
        await theirs.publish()
    assert (next_ones.lead(handed), state.level) == (0.0, Level.COLD)


async def test_what_was_published_and_is_heard_late_does_not_count_as_another_gateway_s() -> None:
    membership = Membership()
    (ours, left), (next_one, _) = replica(membership), replica(membership)
    ours.lead()
    left.move(Level.PROVISIONED)
    await ours.publish()
    membership.hears_late = True
    left.move(Level.READY)
    await ours.publish()
    handed = ours.state()
    next_one.follow()
    assert next_one.lead(handed) == NOW_MS + 30_000
    assert next_one.state().content == handed.content


def replica(membership: Membership) -> tuple[StateExchange, ReplicaState]:
    """Return the state of a replica that has recorded 30 s, and what exchanges it."""
    metrics = GatewayMetrics(CollectorRegistry())
    state = ReplicaState("w", Startup(0.0, 0.0), metrics, lambda: None)
    recorded = cast(Any, SimpleNamespace(recorded_ms=NOW_MS + 30_000))
    return StateExchange("w", cast(Any, membership), state, recorded), state


async def test_a_replica_that_a_reload_removes_is_reported_no_more() -> None:
    gateway = Gateway(Membership())
    await gateway.uses(w=1_000, v=1_000)
    assert (gateway.level("w"), gateway.level("v")) == (2.0, 2.0)
    await gateway.uses(v=2_000)
    assert (gateway.level("w"), gateway.level("v")) == (None, 2.0)
    await gateway.warming.close()
