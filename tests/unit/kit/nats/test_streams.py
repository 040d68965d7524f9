"""A stream whose files a server is still removing is made as soon as they are gone."""

import asyncio
from typing import Any

import pytest

from hocket.kit.nats import streams
from hocket.kit.nats.streams import StreamRefused, ensure_streams

BUSY = {"error": {"code": 500, "err_code": 10049, "description": "error creating store for stream"}}


class Server:
    """JetStream's answers: no stream is there, and the first CREATEs are refused."""

    def __init__(self, refusals: int, refusal: dict[str, Any] = BUSY) -> None:
        self.refusals = refusals
        self.refusal = refusal
        self.made: list[str] = []

    async def api(
        self, subject: str, _body: dict[str, Any], *, timeout_ms: float
    ) -> dict[str, Any]:
        _, verb, name = subject.split(".")
        if verb == "INFO":
            return {"error": {"code": 404}}
        if self.refusals:
            self.refusals -= 1
            return self.refusal
        self.made.append(name)
        return {}


class FullCluster(Server):
    """Servers that are all there, and on whose disks is no room."""

    async def api(
        self, subject: str, _body: dict[str, Any], *, timeout_ms: float
    ) -> dict[str, Any]:
        if subject.startswith("STREAM.INFO"):
            return {"error": {"code": 404}}
        self.made.append(subject)
        reason = "no suitable peers for placement, insufficient storage"
        return {"error": {"code": 400, "err_code": 10_005, "description": reason}}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STORE_RETRY_S", 0.0)
    monkeypatch.setattr(streams, "FORMING_RETRY_S", 0.0)


async def test_a_store_that_is_being_removed_is_waited_for() -> None:
    server = Server(refusals=streams.STORE_TRIES)
    await ensure_streams(server)  # type: ignore[arg-type]
    assert server.made == [wanted["name"] for wanted in streams.stream_configs()]


async def test_a_disk_that_takes_no_store_is_told() -> None:
    server = Server(refusals=streams.STORE_TRIES + 1)
    with pytest.raises(StreamRefused, match="error creating store"):
        await ensure_streams(server)  # type: ignore[arg-type]


FORMING = [
    (400, 10_005, "no suitable peers for placement, peer offline"),
    (503, 10_008, "JetStream system temporarily unavailable"),
]


@pytest.mark.parametrize(("code", "err_code", "reason"), FORMING)
async def test_a_cluster_that_forms_is_waited_for(code: int, err_code: int, reason: str) -> None:
    error = {"code": code, "err_code": err_code, "description": reason}
    server = Server(refusals=5, refusal={"error": error})
    await ensure_streams(server, replicas=3)  # type: ignore[arg-type]
    assert server.made == [wanted["name"] for wanted in streams.stream_configs()]


async def test_a_cluster_without_room_is_not_waited_for() -> None:
    server = FullCluster(refusals=0)
    async with asyncio.timeout(streams.FORMS_S / 2):
        with pytest.raises(StreamRefused, match="insufficient storage"):
            await ensure_streams(server, replicas=3)  # type: ignore[arg-type]
    assert len(server.made) > 1, "smaller ones were tried"
