"""A stream whose files a server is still removing is made as soon as they are gone."""

from typing import Any

import pytest

from hocket.kit.nats import streams
from hocket.kit.nats.streams import StreamRefused, ensure_streams

BUSY = {"error": {"code": 500, "err_code": 10049, "description": "error creating store for stream"}}


class Server:
    """JetStream's answers: no stream is there, and the first CREATEs are refused."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.made: list[str] = []

    async def api(
        self, subject: str, _body: dict[str, Any], *, timeout_ms: float
    ) -> dict[str, Any]:
        _, verb, name = subject.split(".")
        if verb == "INFO":
            return {"error": {"code": 404}}
        if self.refusals:
            self.refusals -= 1
            return BUSY
        self.made.append(name)
        return {}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STORE_RETRY_S", 0.0)


async def test_a_store_that_is_being_removed_is_waited_for() -> None:
    server = Server(refusals=streams.STORE_TRIES)
    await ensure_streams(server)  # type: ignore[arg-type]
    assert server.made == [wanted["name"] for wanted in streams.stream_configs()]


async def test_a_disk_that_takes_no_store_is_told() -> None:
    server = Server(refusals=streams.STORE_TRIES + 1)
    with pytest.raises(StreamRefused, match="error creating store"):
        await ensure_streams(server)  # type: ignore[arg-type]
