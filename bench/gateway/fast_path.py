"""Measure fast calls next to a flood of slow ones in a shared pool: embeddings of 50 ms, chats of 5 s.

Uses a gateway process with NATS, two models whose backends share one pool of `--places` slots, and an
upstream that responds after those times. `--flood` callers request chats without pause, so the pool is
full and its queue is long. Embeddings are requested at `--rate` per second, at random times drawn from
`--seed`. The measure is the time from an embedding's request to its answer over NATS:

- `reserved`: the default; an eighth of the slots serves only fast calls;
- `unreserved`: `reserved_fast: 0`; fast calls take slots as they become free, most urgent first.

Goal: with the default, p99 is at most 100 ms. The number of chats served meanwhile is printed too: it
shows what the reservation costs.

    .venv/bin/python -m bench.gateway.fast_path
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop
import yaml
from aiohttp import web

from bench.support.processes import BenchFailed, answering, free_port, percentile, process
from bench.throughput.overhead import machine_text
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import CallReply, CallRequest, ChatMessage, Priority

EMBEDDING_S, CHAT_S = 0.05, 5.0
GOAL_P99_MS = 100.0
CALL_TIMEOUT_MS = 600_000.0
SETTLE_S = 1.0
ANY_CORE = 0


async def upstream(stack: AsyncExitStack) -> str:
    """Serve slow embeddings and chats, and return the base URL."""

    async def embeddings(_request: web.Request) -> web.Response:
        await asyncio.sleep(EMBEDDING_S)
        data = [{"index": 0, "embedding": [0.5, 0.25]}]
        return web.json_response({"data": data, "usage": {"prompt_tokens": 3}})

    async def chat(_request: web.Request) -> web.Response:
        await asyncio.sleep(CHAT_S)
        message = {"role": "assistant", "content": "tidal"}
        choices = [{"message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 9, "completion_tokens": 2}
        return web.json_response({"choices": choices, "usage": usage})

    application = web.Application()
    application.router.add_post("/v1/embeddings", embeddings)
    application.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


def configuration(url: str, places: int, reserved: int | None) -> dict[str, Any]:
    def model(name: str) -> dict[str, Any]:
        backend = {"name": name, "base_url": url, "model": name, "limit": places, "pool": "gpus"}
        return {"backends": [backend]}

    pool: dict[str, Any] = {"max_concurrency": places}
    if reserved is not None:
        pool["reserved_fast"] = reserved
    return {
        "models": {"writer": model("writer"), "embedder": model("embedder")},
        "pools": {"gpus": pool},
    }


class Calls:
    """Makes calls to a gateway over NATS."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._number = 0
        self.chats = 0

    async def embedding(self) -> float:
        """Request an embedding, and return how long it took in milliseconds."""
        began = time.perf_counter()
        await self._made(model="embedder", embed=("tide",), priority=Priority.STANDARD)
        return (time.perf_counter() - began) * 1000

    async def flood(self) -> None:
        """Request one chat after another, without end."""
        question = (ChatMessage(role="user", content="How high is the tide?"),)
        while True:
            await self._made(model="writer", messages=question, priority=Priority.STANDARD)
            self.chats += 1

    async def _made(self, **fields: Any) -> None:
        self._number += 1
        request = CallRequest(
            call_id=f"bench:{self._number}",
            deadline_at_ms=clock.now_ms() + CALL_TIMEOUT_MS,
            **fields,
        )
        message = await self._bus.request(
            subjects.GATEWAY_CALL, request.model_dump_json().encode(), timeout_ms=CALL_TIMEOUT_MS
        )
        reply = CallReply.model_validate_json(message.data)
        if reply.error is not None:
            raise BenchFailed(str(reply.error))


async def measured(options: argparse.Namespace, reserved: int | None) -> dict[str, Any]:
    """Measure one setting on a fresh gateway."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with AsyncExitStack() as stack:
            url = await upstream(stack)
            servers = await stack.enter_async_context(
                EmbeddedServers(Path(folder, "servers"), postgres=False)
            )
            config, log, port = Path(folder, "c.yaml"), Path(folder, "gateway.log"), free_port()
            _write(config, configuration(url, options.places, reserved))
            gateway = await stack.enter_async_context(
                process(
                    *(sys.executable, "-m", "hocket.gateway"),
                    core=ANY_CORE,
                    log=log,
                    NATS_URL=servers.nats_url,
                    HOCKET_CONFIG=str(config),
                    HOCKET_DATA_DIR=folder,
                    HOCKET_GATEWAY_PORT=str(port),
                )
            )
            await answering(port, gateway, log)
            bus = await Bus.connect(servers.nats_url, name="bench")
            stack.push_async_callback(bus.close)
            await ensure_streams(bus)
            return await flooded(Calls(bus), options)


async def flooded(calls: Calls, options: argparse.Namespace) -> dict[str, Any]:
    flood = [asyncio.create_task(calls.flood()) for _ in range(options.flood)]
    await asyncio.sleep(SETTLE_S)
    dice = random.Random(options.seed)
    before, until = calls.chats, time.perf_counter() + options.seconds
    asking: list[asyncio.Task[float]] = []
    while time.perf_counter() < until:
        await asyncio.sleep(dice.expovariate(options.rate))
        asking.append(asyncio.create_task(calls.embedding()))
    chats = calls.chats - before
    latencies = sorted(await asyncio.gather(*asking))
    for one in flood:
        if one.done():
            one.result()  # it can only have ended with an error
        one.cancel()
    return {
        "embeddings": len(latencies),
        "p50_ms": round(percentile(latencies, 0.5), 1),
        "p99_ms": round(percentile(latencies, 0.99), 1),
        "max_ms": round(latencies[-1], 1),
        "chats_served": chats,
    }


def _write(config: Path, content: dict[str, Any]) -> None:
    config.write_text(yaml.safe_dump(content))


async def main(options: argparse.Namespace) -> None:
    """Measure both settings and print them."""
    print(machine_text(), file=sys.stderr)
    result = {"reserved": await measured(options, None)}
    if not options.only_reserved:
        result["unreserved"] = await measured(options, 0)
    print(json.dumps({**result, "goal_p99_ms": GOAL_P99_MS}, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--places", type=int, default=24)
    parser.add_argument("--flood", type=int, default=200)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-reserved", action="store_true")
    try:
        uvloop.run(main(parser.parse_args()))
    except BenchFailed as failed:
        print(f"failed: {failed}", file=sys.stderr)
        sys.exit(1)
