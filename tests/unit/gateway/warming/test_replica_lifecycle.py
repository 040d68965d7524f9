"""A replica's steps up and down, and what becomes of those that fail."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.warming.warm_leases import Level, Startup, Want
from hocket.gateway.core.warming.warm_rule import Action, DriverSpec, WarmRule
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.warming.accounting import WarmAccounting
from hocket.gateway.warming.drivers import StartFailed
from hocket.gateway.warming.lifecycle import FIRST_PAUSE_MS, MAX_PAUSE_MS, ReplicaLifecycle
from hocket.gateway.warming.policy import WarmPolicy
from hocket.gateway.warming.replica_state import ReplicaState
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.gateway.warming.state_exchange import StateExchange
from hocket.schemas.messages import WarmRecord

NOW_MS = 1_800_000_000_000.0
STEP_MS = 10_000.0
"""How long each action takes."""
MACHINES = DriverSpec("webhook", urls=dict.fromkeys(("load", "release"), "http://fleet"))
MODELS = DriverSpec("webhook", urls=dict.fromkeys(("load", "unload"), "http://gpu"))


@dataclass
class Told:
    """What gateways told each other; stands in for the membership."""

    entries: dict[str, Any] = field(default_factory=dict)

    async def put(self, key: str, content: Any) -> int:
        self.entries[key] = content
        return 1

    def told(self, prefix: str) -> Iterator[tuple[str, int, Any]]:
        yield from ((key, 1, one) for key, one in self.entries.items() if key.startswith(prefix))

    def is_overwritten(self, key: str) -> bool:
        return False


@dataclass
class Server:
    """A driver whose `broken` actions fail."""

    broken: set[Action] = field(default_factory=set)
    done: list[Action] = field(default_factory=list)
    now_ms: float = NOW_MS

    async def do(self, action: Action, *, timeout_ms: float) -> None:
        self.done.append(action)
        self.now_ms += STEP_MS
        if action in self.broken:
            raise StartFailed(replica="gpu", action=action, reason="status 503")

    async def ready(self) -> bool | None:
        return None

    async def close(self) -> None:
        """Nothing is held."""


class Gateway:
    """A leading gateway's part in one replica."""

    def __init__(self, server: Server, told: Told, driver: DriverSpec = MACHINES) -> None:
        self.server = server
        rule = WarmRule(driver, usd_per_hour=Decimal(3_600))
        metrics = GatewayMetrics(CollectorRegistry())
        self.records: list[WarmRecord] = []
        self.state = ReplicaState("gpu", Startup(), metrics, lambda: None)
        policy = WarmPolicy(
            rule,
            self.state,
            last_used_ms=lambda: -inf,
            shared=lambda: False,
            changed=lambda: None,
        )
        accounting = WarmAccounting(
            BackendSpec("gpu", "openai", "m", warm=rule),
            rule,
            "m",
            self.state,
            ReplicaUsage(),
            now_ms=server.now_ms,
            book=self.records.append,
            busy=lambda at_ms: None,
            metrics=metrics,
        )
        self.exchange = StateExchange("gpu", cast(Membership, told), self.state, accounting)
        self.lifecycle = ReplicaLifecycle(
            "gpu",
            rule,
            server,
            self.state,
            policy,
            accounting,
            self.exchange,
            now_ms=lambda: server.now_ms,
            metrics=metrics,
        )

    @property
    def held_ms(self) -> float:
        return sum(one.to_at_ms - one.from_at_ms for one in self.records)

    async def goes(self, level: Level) -> float:
        """Make all steps towards a level that can be made now; return when there may be more."""
        while True:
            again_ms = await self.lifecycle.step(Want(level, "test", inf), self.server.now_ms)
            if again_ms is not None:
                await self.exchange.publish()
                return again_ms


async def leading(server: Server, told: Told, driver: DriverSpec = MACHINES) -> Gateway:
    gateway = Gateway(server, told, driver)
    await gateway.lifecycle.take_over()
    return gateway


async def test_a_release_that_fails_is_tried_again_and_its_machine_counts_until_then() -> None:
    server = Server()
    gateway = await leading(server, Told())
    await gateway.goes(Level.READY)
    server.broken.add("release")
    pause_ms = FIRST_PAUSE_MS
    for _ in range(10):
        again_ms = await gateway.goes(Level.COLD)
        assert again_ms == server.now_ms + pause_ms
        assert await gateway.goes(Level.COLD) == again_ms
        server.now_ms = again_ms
        pause_ms = min(2 * pause_ms, MAX_PAUSE_MS)
    assert server.done == ["provision", "load", "unload", *["release"] * 10]
    assert (gateway.state.level, gateway.state.is_held) == (Level.COLD, True)
    server.broken.clear()
    assert await gateway.goes(Level.COLD) == inf
    assert not gateway.state.is_held
    assert gateway.held_ms == server.now_ms - NOW_MS
    assert sum(one.provisioned_ms for one in gateway.records) > 10 * STEP_MS
    server.now_ms += STEP_MS
    assert await gateway.goes(Level.COLD) == inf
    assert server.done.count("release") == 11


async def test_only_a_stop_that_succeeded_is_logged_as_one() -> None:
    server = Server(broken={"release"})
    gateway = await leading(server, Told())
    await gateway.goes(Level.READY)
    with capture_logs() as logs:
        server.now_ms = await gateway.goes(Level.COLD)
        server.broken.clear()
        await gateway.goes(Level.COLD)
    assert [(one["event"], one["action"]) for one in logs] == [
        ("replica_stopped", "unload"),
        ("replica_not_stopped", "release"),
        ("replica_stopped", "release"),
    ]


async def test_a_machine_is_released_although_its_model_could_not_be_unloaded() -> None:
    server = Server(broken={"unload"})
    gateway = await leading(server, Told())
    await gateway.goes(Level.READY)
    assert await gateway.goes(Level.COLD) == inf
    assert server.done[2:] == ["unload", "release"]
    assert not gateway.state.is_held


@pytest.mark.parametrize("level", [Level.COLD, Level.PROVISIONED])
async def test_without_a_machine_to_release_the_model_is_unloaded_again(level: Level) -> None:
    server = Server(broken={"unload"})
    gateway = await leading(server, Told(), MODELS)
    await gateway.goes(Level.READY)
    server.now_ms = await gateway.goes(level)
    assert gateway.state.is_held
    server.broken.clear()
    assert await gateway.goes(level) == inf
    assert set(server.done[2:]) == {"unload"}
    assert gateway.state.is_held is (level is Level.PROVISIONED)


async def test_a_replica_that_is_wanted_again_does_not_wait_for_its_release() -> None:
    server = Server(broken={"release"})
    gateway = await leading(server, Told())
    await gateway.goes(Level.READY)
    await gateway.goes(Level.COLD)
    assert await gateway.goes(Level.READY) == inf
    assert server.done[-2:] == ["provision", "load"]
    assert gateway.state.unfinished is None


async def test_a_machine_that_came_too_late_is_released_once_it_is_not_wanted() -> None:
    server = Server(broken={"provision"})
    gateway = await leading(server, Told())
    again_ms = await gateway.goes(Level.READY)
    assert not gateway.state.is_held  # there may be no machine at all
    server.now_ms = again_ms
    await gateway.goes(Level.READY)
    assert await gateway.goes(Level.COLD) == inf
    assert server.done == ["provision", "provision", "release"]


async def test_a_new_leader_goes_on_with_a_release_and_counts_from_where_the_former_did() -> None:
    server, told = Server(), Told()
    former = await leading(server, told)
    await former.goes(Level.READY)
    server.broken.add("release")
    await former.goes(Level.COLD)
    server.now_ms += STEP_MS
    server.broken.clear()
    gateway = await leading(server, told)
    assert gateway.state.is_held
    assert await gateway.goes(Level.COLD) == inf
    assert server.done[-2:] == ["release", "release"]
    assert former.held_ms + gateway.held_ms == server.now_ms - NOW_MS


async def test_a_new_leader_gives_a_start_time_before_it_undoes_it() -> None:
    server, told = Server(broken={"provision"}), Told()
    await (await leading(server, told)).goes(Level.READY)
    gateway = await leading(server, told)
    server.now_ms = await gateway.goes(Level.COLD)
    assert server.done == ["provision"]
    assert await gateway.goes(Level.COLD) == inf
    assert server.done == ["provision", "release"]


async def test_a_state_of_an_older_gateway_has_no_step_to_go_on_with() -> None:
    server, told = Server(), Told()
    former = await leading(server, told)
    await former.goes(Level.READY)
    (content,) = told.entries.values()
    del content["unfinished"]
    gateway = await leading(server, told)
    assert (gateway.state.level, gateway.state.unfinished) == (Level.READY, None)
