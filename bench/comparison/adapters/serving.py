"""Code shared by the adapters: orders arrive as lines on stdin, figures leave as lines on stdout.

An order is `{"runs": n, "inflight": m}`; its answer is `{"took_s": s, "latencies_ms": [...]}`. An
adapter prints `ready` first. Each adapter runs in its own virtual environment and imports nothing of
Hocket.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

BODY = {"text": "x" * 189}
"""The same body as in overhead.py: 200 bytes of JSON."""


async def serve(one_run: Callable[[], Awaitable[None]]) -> None:
    """Answer orders until stdin ends. `one_run` starts a run and returns when its end is known."""
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        left = iter(range(order["runs"]))
        latencies_ms: list[float] = []

        async def one_after_the_other(left=left, latencies_ms=latencies_ms) -> None:
            for _ in left:
                began_s = time.perf_counter()
                await one_run()
                latencies_ms.append(1000 * (time.perf_counter() - began_s))

        began_s = time.perf_counter()
        await asyncio.gather(*(one_after_the_other() for _ in range(order["inflight"])))
        answer = {"took_s": time.perf_counter() - began_s, "latencies_ms": latencies_ms}
        print(json.dumps(answer), flush=True)
