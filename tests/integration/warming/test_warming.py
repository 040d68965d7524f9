"""Gateways start and stop models: emulated engines behind real gateway processes."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from hocket.emulator.configuration import parse
from hocket.emulator.running import RunningEngine, running
from hocket.kit.nats.bus import Bus
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import (
    CallReply,
    CallRequest,
    ChatMessage,
    NodeExpected,
    ReplicaControl,
    ReplicasTold,
    RunsExpected,
    WarmRecord,
)
from support.gateway.gateway_process import Gateway, call, running_gateway

BOUND_S = 60.0
SPEED = 100.0
WRITER_S = 0.85 + 0.65


class Engines:
    """Emulated engines by model."""

    def __init__(self, found: dict[str, RunningEngine]) -> None:
        self._found = found

    def state(self, model: str) -> str:
        serving = self._found[model].engine.serving
        serving.warmth.advance(serving.clock.now_ms())
        return serving.warmth.state.value

    def models(self, **more: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {
                "backends": [
                    {
                        "name": name,
                        "base_url": f"{one.url}/v1",
                        "model": name,
                        "warm": {
                            "webhook": {
                                "provision": "{url}/emulator/provision?wait",
                                "load": "{url}/emulator/load?wait",
                                "unload": "{url}/emulator/unload?keep",
                                "release": "{url}/emulator/unload",
                                "ready": "{url}/health",
                            },
                            "idle_s": 0.5,
                            "load_s": 1.0,
                            "min_warm_s": 0.0,
                            "usd_per_hour": "3600",
                        }
                        | more.get(name, {}),
                    }
                ]
            }
            for name, one in self._found.items()
        }


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    starts = {"embedder": (0.0, 30.0), "writer": (85.0, 65.0)}
    groups = [
        {
            "port": 0,
            "profile": {
                "model": model,
                "warm": False,
                "provision_s": provision_s,
                "load_s": load_s,
                "while_cold": "refuse",
            },
        }
        for model, (provision_s, load_s) in starts.items()
    ]
    async with running(parse({"speed": SPEED, "engines": groups})) as found:
        yield Engines({one.engine.profile.model: one for one in found})


async def ask(bus: Bus, model: str, within_s: float = BOUND_S) -> CallReply:
    request = CallRequest(
        call_id=f"{model}-{clock.now_ms()}",
        model=model,
        messages=(ChatMessage(role="user", content="How often?"),),
        max_tokens=2,
        deadline_at_ms=clock.now_ms() + within_s * 1000,
    )
    return await call(bus, request)


async def until(gateway: Gateway, event: str, backend: str, action: str) -> None:
    """Wait until a gateway logs what it did with a replica."""
    while True:
        found = await gateway.logged(event)
        if (found["backend"], found["action"]) == (backend, action):
            return


async def test_a_call_starts_its_model_waits_for_it_and_the_model_goes_when_it_is_idle(
    bus: Bus, nats_url: str, engines: Engines, tmp_path: Path
) -> None:
    booked: asyncio.Queue[WarmRecord] = asyncio.Queue()

    async def heard(message: Msg) -> None:
        for line in message.data.splitlines():
            if json.loads(line)["kind"] == "warm":
                booked.put_nowait(WarmRecord.model_validate_json(line))

    await bus.subscribe(subjects.USAGE_SUBJECT, heard)
    async with running_gateway(nats_url, tmp_path, engines.models()) as gateway:
        reply = await ask(bus, "writer")
        assert (reply.error, reply.backend) == (None, "writer")
        assert reply.queue_ms >= WRITER_S * 1000
        await until(gateway, "replica_stopped", "writer", "release")
        assert engines.state("writer") == "cold"
        record = await asyncio.wait_for(booked.get(), BOUND_S)
    assert record.reason in ("calls", "calls that wait")
    assert record.starting_ms >= WRITER_S * 1000
    assert record.idle_ms > 0
    # at 3,600 dollars an hour a second costs one
    held_s = (record.starting_ms + record.busy_ms + record.idle_ms + record.provisioned_ms) / 1000
    assert abs(float(record.cost_usd) - held_s) < 0.01
    wasted_s = (record.idle_ms + record.provisioned_ms) / 1000
    assert abs(float(record.wasted_usd) - wasted_s) < 0.01


async def test_an_accepted_run_starts_the_models_of_all_its_nodes(
    bus: Bus, nats_url: str, engines: Engines, tmp_path: Path
) -> None:
    models = engines.models(embedder={"idle_s": BOUND_S}, writer={"idle_s": BOUND_S})
    async with running_gateway(nats_url, tmp_path, models) as gateway:
        nodes = (
            NodeExpected(node="embed", model="embedder", after_ms=0.0),
            NodeExpected(node="answer", model="writer", after_ms=0.0),
        )
        runs = RunsExpected(
            tenant="t", pipeline="p", version=1, accepted_at_ms=clock.now_ms(), nodes=nodes
        )
        bus.publish_nowait(subjects.RUNS_EXPECTED, runs.model_dump_json().encode())
        await until(gateway, "replica_started", "embedder", "load")
        await until(gateway, "replica_started", "writer", "load")
        assert {engines.state("embedder"), engines.state("writer")} == {"ready"}
        reply = await ask(bus, "writer")
    assert (reply.error, reply.queue_ms) == (None, 0.0)


async def test_a_call_that_cannot_wait_for_the_start_is_told_so_and_starts_it_all_the_same(
    bus: Bus, nats_url: str, engines: Engines, tmp_path: Path
) -> None:
    slow = {"provision_s": 85.0, "load_s": 65.0, "idle_s": 60.0}
    async with running_gateway(nats_url, tmp_path, engines.models(writer=slow)) as gateway:
        refused = await ask(bus, "writer", within_s=20.0)
        assert refused.error is not None
        assert (refused.error.code, refused.error.state) == ("backends_cold", "cold")
        assert refused.error.retry_at_ms is not None
        await until(gateway, "replica_started", "writer", "load")
        assert (await ask(bus, "writer")).error is None


async def test_a_machine_is_kept_where_the_tier_says_so_and_only_the_model_comes_and_goes(
    bus: Bus, nats_url: str, engines: Engines, tmp_path: Path
) -> None:
    async with running_gateway(
        nats_url, tmp_path, engines.models(writer={"tier": "warm"})
    ) as gateway:
        await until(gateway, "replica_started", "writer", "provision")
        assert engines.state("writer") == "provisioned"
        assert (await ask(bus, "writer")).error is None
        await until(gateway, "replica_stopped", "writer", "unload")
        assert engines.state("writer") == "provisioned"


async def test_the_gateway_that_is_left_goes_on_with_what_another_began(
    bus: Bus, nats_url: str, engines: Engines, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    models = engines.models(writer={"idle_s": 4.0})
    async with (
        running_gateway(nats_url, tmp_path / "one", models) as one,
        running_gateway(nats_url, tmp_path / "two", models) as two,
    ):
        assert (await ask(bus, "writer")).error is None
        leader = await the_leader(bus, (one, two))
        os.kill(leader.process.pid, signal.SIGKILL)
        await leader.process.wait()
        left = two if leader is one else one
        await until(left, "replica_stopped", "writer", "release")
        assert engines.state("writer") == "cold"
        # the dead one's share of the writer's places has returned, too
        assert (await ask(bus, "writer")).error is None


async def the_leader(bus: Bus, gateways: tuple[Gateway, ...]) -> Gateway:
    """Return the gateway whose name is the first: it starts and stops models."""
    jetstream = bus.js
    stream = await jetstream.stream_info(f"KV_{subjects.GATEWAYS}", subjects_filter=">")
    assert stream.state.subjects is not None
    names = [key.rsplit(".", 1)[1] for key in stream.state.subjects if ".member." in key]
    pid = int(min(names).rsplit("-", 2)[1])
    return next(one for one in gateways if one.process.pid == pid)


async def test_a_model_is_warmed_by_hand_and_goes_when_that_is_ended(
    bus: Bus, nats_url: str, engines: Engines, tmp_path: Path
) -> None:
    async def warm(for_s: float) -> ReplicasTold:
        wanted = ReplicaControl(action="warm", backend="embedder", for_ms=for_s * 1000)
        payload = wanted.model_dump_json().encode()
        reply = await bus.request(subjects.GATEWAY_REPLICAS, payload, timeout_ms=BOUND_S * 1000)
        return ReplicasTold.model_validate_json(reply.data)

    async with running_gateway(nats_url, tmp_path, engines.models()) as gateway:
        told = await warm(3_600)
        (state,) = (one for one in told.replicas if one.replica == "embedder")
        assert state.level in ("cold", "provisioned", "ready")
        assert state.warm_until_ms is not None
        while (started := await gateway.logged("replica_started"))["action"] != "load":
            pass
        assert (started["backend"], started["reason"]) == ("embedder", "operator")
        assert engines.state("embedder") == "ready"
        assert engines.state("writer") == "cold"
        await warm(0)
        await until(gateway, "replica_stopped", "embedder", "release")
