"""The gateway process over real NATS: replies, records, repeats, cancellation, reload, drain."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import (
    Attribution,
    CallCancelled,
    CallChunk,
    CallReply,
    CallRequest,
    ChatMessage,
    StepCancelled,
)
from support.gateway.gateway_process import call, records, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream

BOUND_S = 60.0
BOUND_MS = 60_000.0
DEARER = {
    "path": "chat/completions",
    "body": {
        "model": "writer",
        "messages": [{"role": "user", "content": "How high?"}],
        "models": ["dear/model"],
    },
}


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        yield running


def models(upstream: Upstream, **more: Any) -> dict[str, Any]:
    backend = {
        "name": "mock",
        "base_url": upstream.base_url,
        "model": "m-1",
        "stops_on_disconnect": True,
        "prices": {
            "input_usd_per_mtok": "2",
            "cached_usd_per_mtok": "0.5",
            "output_usd_per_mtok": "8",
        },
    }
    return {"writer": {"backends": [backend]}, **more}


def request(call_id: str = "r1:draft:1:1:0", **fields: Any) -> CallRequest:
    return CallRequest.model_validate(
        {
            "call_id": call_id,
            "model": "writer",
            "messages": (ChatMessage(role="user", content="How often?"),),
            "deadline_at_ms": clock.now_ms() + BOUND_MS,
            "attribution": Attribution(pipeline="report", run_id="r1", node="draft", step="draft"),
            **fields,
        }
    )


def connected(bus: Bus) -> Callable[[], Awaitable[bool]]:
    async def is_connected() -> bool:
        return bus.connected

    return is_connected


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await holds():  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.01)


async def test_a_call_is_answered_and_its_record_is_in_the_stream(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        who = request().attribution
        labels = {"team": "search", "hocket.key": "0123456789ab"}
        reply = await call(bus, request(attribution=who.model_copy(update={"labels": labels})))
        (booked,) = await records(bus)
    assert booked.attribution.labels == {"team": "search"}, (
        "others' keys are not a caller's to name"
    )
    expected_usd = Decimal("0.000266")  # 100 x 2 + 20 x 0.5 + 7 x 8 millionths
    assert (reply.text, reply.backend, reply.cost_usd) == ("tidal", "mock", expected_usd)
    assert (booked.call_id, booked.cost_usd, booked.attribution.node) == (
        "r1:draft:1:1:0",
        expected_usd,
        "draft",
    )


async def test_the_pieces_of_an_answer_go_to_an_inbox_while_it_is_made(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    inbox, seen = bus.nc.new_inbox(), asyncio.Queue[CallChunk]()

    async def take(message: Msg) -> None:
        seen.put_nowait(CallChunk.model_validate_json(message.data))

    await bus.subscribe(inbox, take)
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        reply = await call(bus, request(chunks_to=inbox))
        refused = await call(bus, request("r2", chunks_to="hocket.log.0.finished"))
    pieces = [await asyncio.wait_for(seen.get(), BOUND_S) for _ in range(2)]
    assert [(piece.number, piece.text) for piece in pieces] == [(0, "ti"), (1, "dal")]
    assert (reply.text, reply.output_tokens) == ("tidal", 7)
    assert refused.error is not None
    assert refused.error.code == "call_malformed"


async def test_the_same_call_twice_is_made_once(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.answer = upstream.hangs
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        wanted = request()
        together = [asyncio.create_task(call(bus, wanted)) for _ in range(2)]
        await asyncio.wait_for(upstream.called.wait(), BOUND_S)
        upstream.release.set()
        replies = [*await asyncio.gather(*together), await call(bus, wanted)]
        assert len(await records(bus)) == 1
    assert [reply.text for reply in replies] == ["tidal"] * 3
    assert len(upstream.bodies) == 1


async def test_a_cancelled_call_closes_its_connection_and_is_booked(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.answer = upstream.hangs
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        waiting = asyncio.create_task(call(bus, request("c1")))
        await asyncio.wait_for(upstream.called.wait(), BOUND_S)
        bus.publish_nowait(
            subjects.GATEWAY_CANCEL, CallCancelled(call_id="c1").model_dump_json().encode()
        )
        await asyncio.wait_for(upstream.cancelled.wait(), BOUND_S)
        reply = await waiting
        (booked,) = await records(bus)
    assert reply.error is not None
    assert (reply.error.code, booked.status) == ("call_cancelled", "cancelled")


async def test_the_calls_of_a_cancelled_attempt_are_stopped_and_no_others(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.answer = upstream.hangs
    mine = Attribution(run_id="r1", step="find~slow", attempt=1)
    other = Attribution(run_id="r1", step="find~fast", attempt=1)
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        stopped = asyncio.create_task(call(bus, request("c1", attribution=mine)))
        kept = asyncio.create_task(call(bus, request("c2", attribution=other)))
        async with asyncio.timeout(BOUND_S):
            while len(upstream.bodies) < 2:
                upstream.called.clear()
                await upstream.called.wait()
        cancelled = StepCancelled(run_id="r1", step="find~slow", attempt=1, reason="race_lost")
        bus.publish_nowait(subjects.CANCEL_FILTER, cancelled.model_dump_json().encode())
        reply = await asyncio.wait_for(stopped, BOUND_S)
        assert reply.error is not None
        assert reply.error.code == "call_cancelled"
        upstream.release.set()
        assert (await asyncio.wait_for(kept, BOUND_S)).text == "tidal"


async def test_a_call_past_its_deadline_is_booked_as_timed_out(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.answer = upstream.hangs
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        reply = await call(bus, request(deadline_at_ms=clock.now_ms() + 400))
        (booked,) = await records(bus)
    assert reply.error is not None
    assert (reply.error.code, booked.error_code) == ("backend_timed_out", "backend_timed_out")


async def test_a_call_is_answered_although_nats_was_killed_in_the_middle(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path, servers: EmbeddedServers
) -> None:
    upstream.answer = upstream.hangs
    async with running_gateway(nats_url, tmp_path, models(upstream)) as gateway:
        wanted = request()
        first = asyncio.create_task(call(bus, wanted))
        await asyncio.wait_for(upstream.called.wait(), BOUND_S)
        await servers.nats.kill()
        upstream.release.set()

        await servers.nats.wait_ready()
        await gateway.logged("bus_reconnected")
        await until(connected(bus))
        second = asyncio.create_task(call(bus, wanted))
        done, pending = await asyncio.wait(
            {first, second}, timeout=BOUND_S, return_when=asyncio.FIRST_COMPLETED
        )
        replies = [task.result() for task in done if task.exception() is None] or [await second]
        for task in pending:
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        booked = await records(bus)
    assert replies[0].text == "tidal"
    assert (len(upstream.bodies), [one.call_id for one in booked]) == (1, ["r1:draft:1:1:0"])


async def test_the_models_are_listed_with_their_backends(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    unpriced = {"backends": [{"base_url": upstream.base_url, "model": "x"}]}
    section = models(upstream, editor="writer", free=unpriced)
    async with running_gateway(nats_url, tmp_path, section):
        message = await bus.request(subjects.GATEWAY_MODELS, b"", timeout_ms=BOUND_MS)
    listed = {one["name"]: one for one in json.loads(message.data)["models"]}
    assert listed["editor"] == {"name": "editor", "backends": ["mock"], "priced": True}
    assert listed["free"] == {"name": "free", "backends": ["free-1"], "priced": False}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (lambda: b"{", "call_malformed"),
        (lambda: request(model="poet").model_dump_json().encode(), "model_unknown"),
        (
            lambda: request(messages=(), openai=DEARER).model_dump_json().encode(),
            "field_not_passed",
        ),
    ],
)
async def test_a_call_that_cannot_be_made_gets_a_typed_error(
    bus: Bus,
    nats_url: str,
    upstream: Upstream,
    tmp_path: Path,
    wanted: Callable[[], bytes],
    code: str,
) -> None:
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        message = await bus.request(subjects.GATEWAY_CALL, wanted(), timeout_ms=BOUND_MS)
    reply = CallReply.model_validate_json(message.data)
    assert reply.error is not None
    assert reply.error.code == code


async def test_a_reply_beyond_the_payload_limit_is_a_typed_error_and_booked(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    long = {"choices": [{"message": {"content": "x" * 1_100_000}}], "usage": {"prompt_tokens": 9}}
    upstream.answer = upstream.sends(long)
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        reply = await call(bus, request())
        (booked,) = await records(bus)
    assert reply.error is not None
    assert (reply.error.code, booked.status, booked.input_tokens) == ("reply_too_large", "ok", 9)


async def test_a_reply_whose_json_cannot_be_sent_on_stays_text_and_is_bought_once(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    text = '{"a": "\\ud800"}'
    half = {
        "choices": [{"message": {"content": text}}],
        "usage": {"prompt_tokens": 9},
    }
    upstream.answer = upstream.sends(half)
    schema = {"type": "object"}
    async with running_gateway(nats_url, tmp_path, models(upstream)):
        replies = [await call(bus, request(response_schema=schema)) for _ in range(2)]
        (booked,) = await records(bus)
    assert [(reply.error, reply.data) for reply in replies] == [(None, None)] * 2
    assert replies[0].text == text
    assert (booked.status, booked.input_tokens) == ("ok", 9)


async def test_hangup_reads_the_configuration_again(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    async with running_gateway(nats_url, tmp_path, models(upstream)) as gateway:
        gateway.configure(models(upstream, poet="writer"))
        gateway.process.send_signal(signal.SIGHUP)
        await gateway.logged("routing_reloaded")
        assert (await call(bus, request(model="poet"))).text == "tidal"


async def test_a_changed_file_is_read_without_being_told(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    async with running_gateway(nats_url, tmp_path, models(upstream)) as gateway:
        gateway.configure(models(upstream, poet="writer"))
        await gateway.logged("routing_reloaded")
        assert (await call(bus, request(model="poet"))).text == "tidal"


async def test_a_bad_configuration_is_refused_and_the_old_one_stays(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    async with running_gateway(nats_url, tmp_path, models(upstream)) as gateway:
        gateway.configure({"writer": {"backends": [{"base_url": "nowhere", "model": "x"}]}})
        gateway.process.send_signal(signal.SIGHUP)
        refused = await gateway.logged("routing_rejected")
        assert "models.writer.backends[0].base_url" in refused["reason"]
        assert (await call(bus, request())).text == "tidal"


async def test_a_password_in_a_base_url_is_refused_and_not_repeated(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    async with running_gateway(nats_url, tmp_path, models(upstream)) as gateway:
        backend = {"base_url": "http://user:pa55word@127.0.0.1:1/v1", "model": "x"}
        gateway.configure({"writer": {"backends": [backend]}})
        gateway.process.send_signal(signal.SIGHUP)
        refused = (await gateway.logged("routing_rejected"))["reason"]
        assert "models.writer.backends[0].base_url" in refused
        assert "pa55word" not in refused
        assert (await call(bus, request())).text == "tidal"


async def test_a_stopping_gateway_ends_its_calls_first(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.answer = upstream.hangs
    async with running_gateway(nats_url, tmp_path, models(upstream)) as gateway:
        waiting = asyncio.create_task(call(bus, request()))
        await asyncio.wait_for(upstream.called.wait(), BOUND_S)
        gateway.process.send_signal(signal.SIGTERM)
        await gateway.logged("gateway_draining")
        upstream.release.set()
        assert (await waiting).text == "tidal"
        assert await asyncio.wait_for(gateway.process.wait(), BOUND_S) == 0
        assert len(await records(bus)) == 1


async def test_without_configuration_the_extractive_model_answers(
    bus: Bus, nats_url: str, tmp_path: Path
) -> None:
    async with running_gateway(nats_url, tmp_path, None):
        reply = await call(
            bus,
            request(
                task="answer",
                documents=({"id": "P1", "text": "The tide turns twice a day. Boats wait."},),
            ),
        )
        (booked,) = await records(bus)
    assert reply.error is None
    assert (reply.cost_usd, booked.backend) == (Decimal(0), "hocket-extractive")
