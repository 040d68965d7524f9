"""Memory for bodies: those without end, too many, too large. Against a real door, over TCP."""

import asyncio
import gzip

import pytest

from hocket.gateway.api.http import connections, intake
from support.gateway.door_rig import MODELS, asks, running, status
from support.gateway.routing_rig import BOUND_S, Rig, says


async def test_a_body_that_does_not_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "BODY_S", 0.2)
    monkeypatch.setattr(connections, "LINGER_S", 0.1)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(door.request(b'{"model": ', length=1_000))
        assert await status(reader) == 408
        writer.close()


async def test_bodies_beyond_the_bound_are_refused_until_others_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "MAX_BODIES_BYTES", 10_000)
    monkeypatch.setattr(connections, "LINGER_S", 0.1)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        _, first = await door.connect()
        first.write(door.request(b"{", length=7_000))
        async with asyncio.timeout(BOUND_S):
            while not door.door._requests._calls._bodies.held_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0)
        reader, second = await door.connect()
        second.write(door.request(b"{", length=9_000))
        assert await status(reader) == 503
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND_S)
        assert b"retry-after:" in head.lower()
        first.close()
        async with asyncio.timeout(BOUND_S):
            while door.door._requests._calls._bodies.held_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0)
        reader, third = await door.connect()
        third.write(door.request(asks()))
        assert await status(reader) == 200
        second.close()
        third.close()
    assert door.door._requests._calls._bodies.held_bytes == 0


async def test_a_tenant_that_announces_large_bodies_leaves_room_for_others() -> None:
    """Two connections that send nothing would else keep everybody from the door."""
    bodies = intake.Bodies()
    held = intake.Body(bodies, "greedy")
    held.take(intake.MAX_BODY_BYTES)
    with pytest.raises(intake.TenantBodiesFull) as refused:
        intake.Body(bodies, "greedy").take(intake.MAX_BODY_BYTES)
    assert refused.value.info().retry_at_ms is not None
    intake.Body(bodies, "greedy").take(intake.MAX_BODY_BYTES // 2)
    intake.Body(bodies, "modest").take(intake.MAX_BODY_BYTES // 4)
    held.release()
    intake.Body(bodies, "third").take(intake.MAX_BODY_BYTES // 2)


async def test_a_body_without_a_length_is_counted_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "MAX_BODY_BYTES", 10_000)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        head = door.request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
        writer.write(head + chunk * 4)
        assert await status(reader) == 413
        writer.close()


async def test_a_body_of_very_many_values_is_refused_before_it_is_read() -> None:
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(door.request(b'{"messages": [' + b"[]," * 2_100_000 + b"[]]}"))
        assert await status(reader) == 413
        writer.close()


async def test_a_compressed_body_is_refused_and_never_unpacked() -> None:
    """A hundred kilobytes of zeros would make a hundred megabytes."""
    packed = gzip.compress(b'{"a": "' + b"0" * (intake.MAX_BODY_BYTES + 2**20) + b'"}')
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        head, _, content = door.request(packed).partition(b"\r\n\r\n")
        writer.write(head + b"\r\nContent-Encoding: gzip\r\n\r\n" + content)
        assert await status(reader) == 415
        assert door.door._requests._calls._bodies.held_bytes == 0
        writer.close()
