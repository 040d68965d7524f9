"""Replicas are drained, resumed, warmed and reset at all gateways, also at one that starts later."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hocket.admin.backends.errors import GatewayAway
from hocket.admin.backends.gathering import gathered
from hocket.kit.nats.bus import Bus
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.administration.backends import BackendList, ReplicaAtGateway
from hocket.schemas.messages import (
    CallReply,
    CallRequest,
    ChatMessage,
    ReplicaControl,
    ReplicasTold,
)
from support.gateway.gateway_process import call, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream

BOUND_S = 60.0
BOUND_MS = BOUND_S * 1000
CALLS = 12
"""So often that each of two gateways gets one, but for one time in two thousand."""


@pytest.fixture
async def upstreams() -> AsyncIterator[tuple[Upstream, Upstream]]:
    async with running_upstream() as first, running_upstream() as second:
        yield first, second


def backend(name: str, upstream: Upstream, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "base_url": upstream.base_url,
        "model": "m",
        "prices": {"input_usd_per_mtok": "2", "output_usd_per_mtok": "8"},
        **more,
    }


async def ask(bus: Bus, number: int, within_ms: float = BOUND_MS) -> CallReply:
    request = CallRequest(
        call_id=f"c{number}",
        model="writer",
        messages=(ChatMessage(role="user", content="How often?"),),
        deadline_at_ms=clock.now_ms() + within_ms,
    )
    return await call(bus, request)


async def control(bus: Bus, action: str, **fields: Any) -> ReplicasTold:
    wanted = ReplicaControl.model_validate({"action": action, "by": "key:ops", **fields})
    payload = wanted.model_dump_json().encode()
    reply = await bus.request(subjects.GATEWAY_REPLICAS, payload, timeout_ms=BOUND_MS)
    return ReplicasTold.model_validate_json(reply.data)


async def until(bus: Bus, holds: Callable[[BackendList], bool]) -> BackendList:
    """Wait until what all gateways say is so."""
    async with asyncio.timeout(BOUND_S):
        while not holds(found := await gathered(bus)):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)
    return found


def seen(found: BackendList, replica: str) -> tuple[ReplicaAtGateway, ...]:
    (one,) = (one for one in found.replicas if one.replica == replica)
    return one.gateways


async def both(bus: Bus) -> BackendList:
    return await until(bus, lambda found: len(found.gateways) == 2 and not found.silent)


async def test_a_drained_backend_gets_no_call_from_any_gateway_also_after_a_restart(
    bus: Bus, nats_url: str, upstreams: tuple[Upstream, Upstream], tmp_path: Path
) -> None:
    old, new = upstreams
    models = {"writer": {"backends": [backend("old", old), backend("new", new)]}}
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    async with AsyncExitStack() as running:
        for name in ("one", "two"):
            await running.enter_async_context(running_gateway(nats_url, tmp_path / name, models))
        await both(bus)
        told = await control(bus, "drain", backend="old", reason="new driver")
        assert told.error is None
        await until(bus, lambda found: [one.drained for one in seen(found, "old")] == [True, True])
        for number in range(CALLS):
            assert (await ask(bus, number)).backend == "new"
        assert old.bodies == []
    async with running_gateway(nats_url, tmp_path / "three", models):
        found = await until(bus, lambda found: len(found.gateways) == 1)
        orders = {one.replica: (one.drained, one.by, one.reason) for one in found.replicas}
        assert orders["old"] == (True, "key:ops", "new driver")
        assert orders["new"] == (False, "", "")
        assert (await ask(bus, CALLS)).backend == "new"
        await control(bus, "drain", backend="new")
        waiting = asyncio.create_task(ask(bus, CALLS + 1))
        await until(bus, lambda found: any(one.waiting for one in seen(found, "old")))
        await control(bus, "resume", backend="old")
        assert (await waiting).backend == "old"


async def test_a_reset_closes_the_breakers_of_all_gateways(
    bus: Bus, nats_url: str, upstreams: tuple[Upstream, Upstream], tmp_path: Path
) -> None:
    upstream, _ = upstreams
    upstream.answer = upstream.fails(500)
    breaker = {"failures_in_a_row": 1, "open_ms": 3_000_000, "max_open_ms": 3_000_000}
    models = {"writer": {"backends": [backend("b", upstream, breaker=breaker)], "retries": 0}}
    async with AsyncExitStack() as running:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            await running.enter_async_context(running_gateway(nats_url, tmp_path / name, models))
        await both(bus)

        async def are_open() -> bool:
            return [one.breaker for one in seen(await gathered(bus), "b")] == ["open", "open"]

        number = 0
        while not await are_open():
            await ask(bus, number := number + 1)
        told = await control(bus, "reset", backend="b", replica="b")
        assert told.error is None
        found = await until(
            bus, lambda found: {one.breaker for one in seen(found, "b")} == {"closed"}
        )
        assert sum(one.openings for one in seen(found, "b")) >= 2
        upstream.answer = upstream.completes
        assert (await ask(bus, 1_000)).error is None


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"action": "drain", "backend": "none"}, "backend_unknown"),
        ({"action": "drain", "backend": "b", "replica": "b/2"}, "replica_unknown"),
        ({"action": "warm", "backend": "b", "for_ms": 1.0}, "replica_not_started"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_cure(
    wanted: dict[str, Any],
    code: str,
    bus: Bus,
    nats_url: str,
    upstreams: tuple[Upstream, Upstream],
    tmp_path: Path,
) -> None:
    models = {"writer": {"backends": [backend("b", upstreams[0])]}}
    async with running_gateway(nats_url, tmp_path, models):
        told = await control(bus, **wanted)
    assert told.error is not None
    assert told.error.code == code
    assert "b" in told.error.message


async def test_without_a_gateway_that_is_said(bus: Bus) -> None:
    with pytest.raises(GatewayAway):
        await gathered(bus)
