"""A foretold prompt is read by one replica, and the call that follows goes to the same."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

from nats.aio.msg import Msg

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, CallRequest, ChatMessage, PromptExpected
from support.gateway.gateway_process import call, running_gateway
from support.gateway.mock_upstream import running_upstream

BOUND_S = 60.0
TEXT = "The tide turns twice a day. " * 200


async def test_a_foretold_prompt_is_read_once_by_the_replica_that_answers(
    nats_url: str, tmp_path: Path
) -> None:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    booked: set[tuple[str, str]] = set()
    both_booked = asyncio.Event()

    async def heard(message: Msg) -> None:
        for line in map(json.loads, message.data.splitlines()):
            if line["kind"] == "call":
                booked.add((line["call_id"], line["attribution"]["node"]))
        if len(booked) == 2:
            both_booked.set()

    await bus.subscribe(subjects.USAGE_SUBJECT, heard)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(running_upstream()) for _ in range(3)]
        backend = {
            "name": "b",
            "model": "m",
            "replicas": [server.base_url for server in servers],
            "prefix_cache": {"tokens": 100_000, "block_tokens": 16},
        }
        models = {"writer": {"backends": [backend]}}
        await stack.enter_async_context(running_gateway(nats_url, tmp_path, models))
        expected = PromptExpected(
            tenant="acme",
            pipeline="report",
            version=1,
            run_id="r1",
            node="draft",
            model="writer",
            messages=(ChatMessage(role="system", content=TEXT),),
            deadline_at_ms=clock.now_ms() + BOUND_S * 1000,
        )
        for _ in range(2):  # the second finds it read already
            bus.publish_nowait(subjects.PROMPT_EXPECTED, expected.model_dump_json().encode())
        called = [asyncio.create_task(server.called.wait()) for server in servers]
        await asyncio.wait(called, timeout=BOUND_S, return_when=asyncio.FIRST_COMPLETED)
        (reader,) = [server for server in servers if server.called.is_set()]
        assert reader.bodies[0]["max_tokens"] == 1
        messages = (*expected.messages, ChatMessage(role="user", content="How often?"))
        request = CallRequest(
            call_id="r1:draft:1:1:1",
            model="writer",
            messages=messages,
            deadline_at_ms=expected.deadline_at_ms,
            attribution=Attribution(tenant="acme", pipeline="report", run_id="r1", node="draft"),
        )
        assert (await call(bus, request)).text == "tidal"
        await asyncio.wait_for(both_booked.wait(), BOUND_S)
        for one in called:
            one.cancel()
    assert [len(server.bodies) for server in servers if server is not reader] == [0, 0]
    assert len(reader.bodies) == 2
    assert booked == {("r1:draft:prefill", "draft"), ("r1:draft:1:1:1", "draft")}
    await bus.close()
