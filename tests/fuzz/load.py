"""The healthy runs: tasks at a fixed rate, each with a known result, and their durations."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from fuzz.messages import TENANT
from hocket.schemas import ids, subjects

ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
PRICE_USD_PER_MTOK = "1000"
TOKENS = (3, 1)
"""Input and output tokens of each model call: $0.004 at that price."""
COST_USD = "0.004"
SLO_MS = 600_000
PIPELINES: dict[str, dict[str, Any]] = {
    "chain": {
        "nodes": {
            "first": ECHO | {"with": {"n": "{{ input.n }}"}},
            "second": ECHO | {"with": {"n": "{{ nodes.first.output.n + 1 }}"}},
        },
        "output": "{{ nodes.second.output.n }}",
    },
    "call": {
        "nodes": {
            "asked": {
                "type": "llm",
                "model": "probe",
                "prompt": "{{ input.n }}",
                "with": {"n": "{{ input.n }}"},
            }
        },
        "output": "{{ nodes.asked.output }}",
    },
}
ORDER = ("chain", "chain", "chain", "call")


@dataclass
class Sent:
    """A task that was published."""

    run_id: str
    pipeline: str
    n: int
    at_s: float


@dataclass
class Load:
    """Publishes tasks and hears their ends."""

    nats_url: str
    prefix: str
    sent: dict[str, Sent] = field(default_factory=dict)
    ended: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    """By run: when its end arrived, and its content."""
    doubled: list[str] = field(default_factory=list)

    async def open(self) -> None:
        """Connect."""
        self._client: Client = await nats.connect(self.nats_url, error_cb=_quiet)
        self._inbox = self._client.new_inbox()
        self._changed = asyncio.Event()
        await self._client.subscribe(self._inbox + ".*", cb=self._hear)

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()

    async def run(self, rate: float, seconds: float) -> None:
        """Publish at a rate for some seconds."""
        jetstream = self._client.jetstream(timeout=60)
        begun = time.monotonic()
        number = len(self.sent)
        publishing: set[asyncio.Task[None]] = set()
        for count in range(int(rate * seconds)):
            pause_s = begun + count / rate - time.monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            task = asyncio.create_task(self._publish(jetstream, number + count))
            publishing.add(task)
            task.add_done_callback(publishing.discard)
        await asyncio.gather(*publishing)

    async def all_ended(self, within_s: float) -> None:
        """Wait for all ends, at most `within_s`; the verdict reports what is missing."""
        try:
            async with asyncio.timeout(within_s):
                while len(self.ended) < len(self.sent):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    async def _publish(self, jetstream: Any, number: int) -> None:
        key, pipeline = f"{self.prefix}-{number}", ORDER[number % len(ORDER)]
        run_id = ids.run_id(TENANT, key)
        headers = {
            "Hocket-Idempotency-Key": key,
            "Hocket-Reply-To": f"{self._inbox}.{run_id}",
        }
        body = json.dumps({"n": number}).encode()
        at_s = time.monotonic()
        self.sent[run_id] = Sent(run_id, pipeline, number, at_s)
        await jetstream.publish(subjects.task(TENANT, pipeline), body, headers=headers)

    async def _hear(self, message: Msg) -> None:
        run_id = message.subject.rsplit(".", 1)[1]
        end = json.loads(message.data)
        if run_id not in self.ended:
            self.ended[run_id] = (time.monotonic(), end)
            self._changed.set()
        elif end.get("status") == "rejected":
            return  # a forged task may name any inbox, and is refused there
        elif end != self.ended[run_id][1]:  # a repeated task is answered with the same end again
            self.doubled.append(run_id)


async def _quiet(error: Exception) -> None:
    """Ignore the error: the verdict reports what is missing."""
