"""A gateway process for tests, and the requests to it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import CallReply, CallRequest, UsageRecord
from support.shared.processes import ForkedProcess, started_with_output

BOUND_S = 60.0
BOUND_MS = 60_000.0
ENDED = "the process ended"


class Gateway:
    """A gateway process under test."""

    def __init__(self, process: ForkedProcess, config: Path, sections: dict[str, Any]) -> None:
        self.process = process
        self.config = config
        self.sections = sections
        """Sections of the configuration other than `models:`."""
        self.url = ""
        """The base URL of its HTTP door."""
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def read_log(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self._events.put_nowait(json.loads(line))
        self._events.put_nowait({"event": ENDED})

    async def logged(self, event: str) -> dict[str, Any]:
        """Wait until the gateway logs `event`."""
        async with asyncio.timeout(BOUND_S):
            seen: list[dict[str, Any]] = []
            while (entry := await self._events.get())["event"] not in (event, ENDED):
                seen.append(entry)
            assert entry["event"] == event, seen
            return entry

    def configure(self, section: dict[str, Any]) -> None:
        self.config.write_text(yaml.safe_dump({**self.sections, "models": section}))


@asynccontextmanager
async def running_gateway(
    nats_url: str,
    folder: Path,
    section: dict[str, Any] | None,
    *,
    answers_after: str = "flush",
    **sections: Any,
) -> AsyncIterator[Gateway]:
    """Run a gateway with a `models:` section, and others, until the block ends.

    By default answers are sent only when their records are stored, for tests that read those next. The
    HTTP door requires no key unless `access` says otherwise."""
    config = folder / "hocket.yaml"
    sections = {"access": {"open": True}, **sections}
    environment = {
        **os.environ,
        "NATS_URL": nats_url,
        "HOCKET_DATA_DIR": str(folder),
        "HOCKET_GATEWAY_ANSWERS_AFTER": answers_after,
    }
    named = sections if section is None else {**sections, "models": section}
    config.write_text(yaml.safe_dump(named))
    environment["HOCKET_CONFIG"] = str(config)
    process = await started_with_output("hocket.gateway", environment)
    gateway = Gateway(process, config, sections)
    reading = asyncio.create_task(gateway.read_log())
    try:
        gateway.url = (await gateway.logged("gateway_serving"))["url"]
        yield gateway
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


async def call(bus: Bus, wanted: CallRequest, *, again: bool = False) -> CallReply:
    message = await bus.request(
        subjects.GATEWAY_CALL,
        wanted.model_dump_json().encode(),
        timeout_ms=BOUND_MS,
        headers={subjects.ASKED_AGAIN: "1"} if again else None,
    )
    return CallReply.model_validate_json(message.data)


async def records(bus: Bus) -> list[UsageRecord]:
    """Return the booked calls in USAGE, in order."""
    lines = [line for data in await _messages(bus, subjects.USAGE) for line in data.splitlines()]
    return [UsageRecord.model_validate_json(line) for line in lines]


async def opened(bus: Bus) -> list[str]:
    """Return the calls in CALLS that were opened, in order."""
    told = [json.loads(data) for data in await _messages(bus, subjects.CALLS)]
    return [one["call_id"] for one in told if one["kind"] == "opened"]


async def _messages(bus: Bus, stream: str) -> list[bytes]:
    state = (await bus.js.stream_info(stream)).state
    return [
        (await bus.js.get_msg(stream, seq, direct=False)).data or b""
        for seq in range(max(state.first_seq, 1), state.last_seq + 1)
    ]
