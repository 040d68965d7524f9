"""A step says itself that what it called did not answer in time."""

import asyncio
import re
from typing import Any

import pytest

from hocket.workers.call_time import MAX_TO_REPORT_MS, call_time_ms
from hocket.workers.http.services import Services
from hocket.workers.mcp.servers import McpServers
from hocket.workers.nats.services import NatsServices
from hocket.workers.nodes.http import HttpNode
from hocket.workers.nodes.mcp import McpNode
from hocket.workers.nodes.nats import NatsNode
from hocket.workers.runtime.execution.alarms import Alarms
from support.worker_rig import Rig

TIMEOUT_MS = 500


class Attempt:
    def __init__(self, deadline_at_ms: float) -> None:
        self.deadline_at_ms = deadline_at_ms


@pytest.mark.parametrize(
    ("left_ms", "call_ms"), [(100.0, 90.0), (10_000.0, 9_000.0), (60_000.0, 59_000.0)]
)
def test_a_tenth_of_the_time_is_kept_and_at_most_a_second(
    monkeypatch: pytest.MonkeyPatch, left_ms: float, call_ms: float
) -> None:
    monkeypatch.setattr("hocket.workers.call_time.now_ms", lambda: 7_000.0)
    assert call_time_ms(Attempt(7_000.0 + left_ms)) == call_ms
    assert MAX_TO_REPORT_MS == 1_000
    assert 0 < call_time_ms(Attempt(0.0)) < 1


async def test_a_call_without_an_answer_ends_before_its_attempt_is_stopped(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    # whatever the load, the alarm does not come first: what is checked is the time that a call had
    monkeypatch.setattr(Alarms, "set", lambda *_: None)
    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    place = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    http = Services({"it": {"url": f"http://{place}", "private": True}}, {})
    mcp = McpServers({"it": {"url": f"http://{place}", "private": True}}, {})
    nats = NatsServices({"it": {"servers": [f"nats://{place}"], "subject": "a"}}, {})
    handlers: dict[str, Any] = {"http": HttpNode(http), "mcp": McpNode(mcp), "nats": NatsNode(nats)}
    configs = {
        "http": {"service": "it"},
        "mcp": {"server": "it", "tool": "a"},
        "nats": {"service": "it"},
    }
    rig = await Rig.open(nats_url)
    try:
        async with rig.worker(handlers):
            for kind, config in configs.items():
                step = await rig.send(type=kind, config=config, timeout_ms=TIMEOUT_MS)
                error = (await rig.result(step)).error
                assert error is not None
                assert error.code == f"{kind}_timeout"
                told = re.search(r"within (\d+) ms", error.message)
                assert told is not None, error.message
                assert int(told[1]) <= 0.9 * TIMEOUT_MS
    finally:
        await rig.close()
        await http.close()
        await mcp.close()
        await nats.close()
        listening.close()
