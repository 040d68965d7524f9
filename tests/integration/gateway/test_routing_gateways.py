"""What goes beyond one choice, on real gateways: experiments, cascades, hedges, hooks, explained."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry

from hocket.admin.calls.reads import explain
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process import clock
from hocket.kit.process.lifecycle import Health
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.records.intake import ANNOUNCED, BOOKED, Intake
from hocket.schemas import subjects
from hocket.schemas.messages import (
    ArmRolledBack,
    Attribution,
    CallRequest,
    ChatMessage,
    ExperimentControl,
    ExperimentsTold,
)
from support.gateway.gateway_process import call, records, running_gateway
from support.gateway.mock_upstream import Upstream, delta, running_upstream

BOUND_S = 60.0
ASKED = 12
"""So often that both of two gateways are among those who answer, but for one time in two thousand."""


@pytest.fixture
async def upstreams() -> AsyncIterator[tuple[Upstream, Upstream]]:
    async with running_upstream() as first, running_upstream() as second:
        yield first, second


def backend(name: str, upstream: Upstream) -> dict[str, Any]:
    prices = {"input_usd_per_mtok": "2", "output_usd_per_mtok": "8"}
    return {
        "name": name,
        "base_url": upstream.base_url,
        "model": "m",
        "prices": prices,
        "stops_on_disconnect": True,
    }


def request(number: int, **fields: Any) -> CallRequest:
    return CallRequest.model_validate(
        {
            "call_id": f"c{number}",
            "model": "writer",
            "messages": (ChatMessage(role="user", content="How often?"),),
            "deadline_at_ms": clock.now_ms() + BOUND_S * 1000,
            "attribution": Attribution(run_id=f"run-{number}", pipeline="report", node="draft"),
            **fields,
        }
    )


async def control(bus: Bus, **fields: Any) -> ExperimentsTold:
    wanted = ExperimentControl.model_validate(fields).model_dump_json().encode()
    reply = await bus.request(subjects.GATEWAY_EXPERIMENTS, wanted, timeout_ms=BOUND_S * 1000)
    return ExperimentsTold.model_validate_json(reply.data)


async def all_say(bus: Bus, *, off: bool) -> bool:
    """Tell whether whoever is asked says that the canary is off, or on."""
    told = [await control(bus, action="list") for _ in range(ASKED)]
    return all(one.experiments[0].arms[1].off is off for one in told)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await holds():  # noqa: ASYNC110 - the state of other processes
            await asyncio.sleep(0.05)


async def test_a_bad_canary_is_rolled_back_by_two_gateways_and_restored_by_hand(
    bus: Bus, nats_url: str, upstreams: tuple[Upstream, Upstream], tmp_path: Path
) -> None:
    old, new = upstreams
    new.answer = new.fails(500)
    facts: asyncio.Queue[ArmRolledBack] = asyncio.Queue()

    async def heard(message: Msg) -> None:
        facts.put_nowait(ArmRolledBack.model_validate_json(message.data))

    await bus.subscribe("hocket.event._gateway.next.arm-rolled-back", heard)
    models = {
        "writer": {"backends": [backend("o", old)]},
        "writer-2": {"backends": [{**backend("n", new), "breaker": False}]},
    }
    arms = {"control": {"weight": 3}, "canary": {"model": "writer-2", "weight": 1}}
    experiments = {"next": {"model": "writer", "pipeline": "report", "arms": arms}}
    async with AsyncExitStack() as running:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            await running.enter_async_context(
                running_gateway(nats_url, tmp_path / name, models, experiments=experiments)
            )
        made, off = 0, False
        while not off:
            assert len(new.bodies) <= 100, "a bad canary is rolled back within 100 of its calls"
            await asyncio.gather(*(call(bus, request(n)) for n in range(made, made + 20)))
            made += 20
            off = (await control(bus, action="list")).experiments[0].arms[1].off
        await until(lambda: all_say(bus, off=True))
        fact = await asyncio.wait_for(facts.get(), BOUND_S)
        before = len(new.bodies)
        replies = [await call(bus, request(n)) for n in range(made, made + 20)]
        assert len(new.bodies) == before
        assert {reply.backend for reply in replies} == {"o"}
        booked = await records(bus)
        restored = await control(
            bus, action="restore", experiment="next", arm="canary", by="api:me"
        )
        assert restored.error is None
        await until(lambda: all_say(bus, off=False))
    assert (fact.arm, fact.cause, fact.model) == ("canary", "errors", "writer-2")
    assert {(one.arm, one.backend) for one in booked} == {("control", "o"), ("canary", "n")}


async def test_a_cascade_and_its_decisions_are_in_the_ledger_and_explained(
    bus: Bus,
    nats_url: str,
    database_url: str,
    upstreams: tuple[Upstream, Upstream],
    tmp_path: Path,
) -> None:
    small, large = upstreams
    small.answer = small.sends(
        {
            "choices": [{"message": {"content": json.dumps({"sure": 0.2})}}],
            "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0},
        }
    )
    models = {
        "small": {"backends": [backend("s", small)]},
        "large": {"backends": [backend("l", large)]},
        "writer": {"cascade": {"models": ["small", "large"], "accept": "answer.data.sure > 0.8"}},
    }
    pool = await connect_pool(database_url, size=2, name="test")
    stopping, metrics = asyncio.Event(), LedgerMetrics(CollectorRegistry())
    ledger = [Intake(bus, pool, Health(), metrics, one) for one in (BOOKED, ANNOUNCED)]
    booking = asyncio.gather(*(one.run(stopping) for one in ledger))

    async def booked() -> bool:
        rows = await pool.fetchval("SELECT count(*) FROM hocket.usage")
        return bool(rows == 2 and await pool.fetchval("SELECT count(*) FROM hocket.refused_call"))

    try:
        async with running_gateway(nats_url, tmp_path, models):
            reply = await call(bus, request(1))
            refused = await call(bus, request(2, model="poet"))
            await until(booked)
        explained = await explain(pool, "default", "c1")
        nobody = await explain(pool, "default", "c2")
        kinds = await pool.fetch("SELECT kind, cost_usd FROM report.usage ORDER BY call_id")
    finally:
        stopping.set()
        await asyncio.wait_for(booking, BOUND_S)
        await pool.close()
    assert (reply.text, reply.backend) == ("tidal", "l")
    found = [(one.call_id, one.kind, one.backend) for one in explained.attempts]
    assert found == [("c1", "cascade", "s"), ("c1:r1", "call", "l")]
    decision = explained.attempts[1].decision
    assert decision is not None
    assert "as `small` was not accepted" in decision.because
    assert [row["kind"] for row in kinds] == ["cascade", "call"]
    assert float(kinds[0]["cost_usd"]) == 2.0  # a million tokens in
    assert refused.error is not None
    assert nobody.refused is not None
    assert nobody.refused.error_code == refused.error.code == "model_unknown"


async def test_a_hanging_replica_is_hedged_and_its_connection_closed(
    bus: Bus, nats_url: str, upstreams: tuple[Upstream, Upstream], tmp_path: Path
) -> None:
    first, second = upstreams
    models = {
        "writer": {
            "hedge": {"share": 1, "min_ms": 20},
            "backends": [backend("a", first), backend("b", second)],
        }
    }
    async with running_gateway(nats_url, tmp_path, models):
        for number in range(30):
            await call(bus, request(number))
        first.answer = first.hangs  # at equal load the first one is chosen
        reply = await call(bus, request(99))
        await asyncio.wait_for(first.cancelled.wait(), BOUND_S)
        last = [one for one in await records(bus) if one.call_id.startswith("c99")]
    assert (reply.text, reply.backend) == ("tidal", "b")
    assert sorted((one.call_id, one.backend, one.kind, one.status) for one in last) == [
        ("c99", "a", "speculation", "cancelled"),
        ("c99:h", "b", "call", "ok"),
    ]


async def test_personal_data_stays_here_and_comes_back_in_the_stream(
    bus: Bus, nats_url: str, upstreams: tuple[Upstream, Upstream], tmp_path: Path
) -> None:
    theirs, _ = upstreams
    theirs.answer = theirs.streams(
        delta(role="assistant", content=""),
        delta(content="I wrote to <EM"),
        delta(content="AIL_1> and"),
        delta(content=" <b>"),
        delta("stop"),
    )
    models = {"writer": {"backends": [backend("b", theirs)]}}
    body = {
        "model": "writer",
        "stream": True,
        "messages": [{"role": "user", "content": "Write to ada@example.org, +49 30 901820"}],
    }
    hooks = [{"use": "pii", "budget_ms": 10_000}]
    async with (
        running_gateway(nats_url, tmp_path, models, hooks=hooks) as gateway,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(f"{gateway.url}/chat/completions", json=body) as reply:
            events = [line.removeprefix("data: ") for line in (await reply.text()).split("\n\n")]
        theirs.answer = theirs.completes
        plain = await call(
            bus, request(1, messages=[ChatMessage(role="user", content="ada@x.org")])
        )
    chunks = [json.loads(event) for event in events if event.startswith("{")]
    said = "".join(one["choices"][0]["delta"].get("content", "") for one in chunks)
    assert said == "I wrote to ada@example.org and <b>"
    sent = [one["messages"][0]["content"] for one in theirs.bodies]
    assert sent == ["Write to <EMAIL_1>, <PHONE_1>", "<EMAIL_1>"]
    assert plain.text == "tidal"
