"""Which requests a real HTTP door lets in, and what its callers are told otherwise."""

import aiohttp
import pytest

from hocket.gateway.api.http.answering import requests
from hocket.gateway.api.http.answering.reads import HttpReads
from support.gateway.door_rig import MODELS, asks, running
from support.gateway.routing_rig import Rig, says


async def test_more_requests_at_once_than_may_be_are_refused_and_told_when_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        running(Rig(MODELS, a=says("tidal"))) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        assert (await client.get("/v1/models")).status == 200
        monkeypatch.setattr(requests, "MAX_REQUESTS", 0)
        refused = await client.get("/v1/models")
        assert (await refused.json())["error"]["code"] == "gateway_full"
        assert refused.headers["retry-after"] == "1"
        monkeypatch.undo()
        assert (await client.get("/v1/models")).status == 200


async def test_a_door_that_closes_lets_nobody_else_in() -> None:
    rig = Rig(MODELS, a=says("tidal"))
    async with running(rig) as door, aiohttp.ClientSession(door.url) as client:
        assert (await client.get("/v1/models")).status == 200  # the connection is kept
        door.door._requests.take_no_more()
        refused = await client.post("/v1/chat/completions", json=asks())
        assert (await refused.json())["error"]["code"] == "gateway_full"
    assert rig.records == []


async def test_a_fault_of_ours_is_a_typed_error_that_tells_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("password=secret")

    async with (
        running(Rig(MODELS, a=says("tidal"))) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        with monkeypatch.context() as patched:
            patched.setattr(HttpReads, "answer", broken)
            answer = await client.get("/v1/models")
            body = await answer.text()
        assert (await client.get("/v1/models")).status == 200
    assert answer.status >= 500
    assert "gateway_broken" in body
    assert "secret" not in body
