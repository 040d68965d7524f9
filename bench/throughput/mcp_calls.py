"""Measure what MCP adds to a call, in time and CPU, compared with the same run started over REST.

The tool is called at `hocket mcp --http`. Both are requested in alternation over keep-alive
connections, by a client that does next to nothing (`http.client`), so that the time measured is the
server's. `now` is the protocol that names its version with each request, `before` the one with a
handshake. With `--against` the `hocket mcp` of another checkout takes part as well. Prints a line of
JSON for each protocol.

    .venv/bin/python -m bench.throughput.mcp_calls --calls 300 --against ../other
"""

import argparse
import asyncio
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.support.machine import machine_text
from hocket.cli.local.platform import Platform

NAME, GIVEN = "greet", {"name": "Ada"}
PIPELINE = {
    "pipeline": NAME,
    "input": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    "nodes": {
        "a": {
            "type": "python",
            "handler": "hocket.workers.builtin:echo",
            "with": {"text": "Hello {{ input.name }}"},
        }
    },
}
WARM_UP = 30
WAIT_MS = 10_000
BEFORE, NOW = "2025-06-18", "2026-07-28"
META = "io.modelcontextprotocol"


async def main(arguments: argparse.Namespace) -> None:
    """Make the calls, and print what MCP added."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-", dir=arguments.folder) as folder:
        services = ("coordinator", "worker", "admin")
        async with AsyncExitStack() as stack:
            platform = Platform(Path(folder) / "data", services=services)
            await stack.enter_async_context(platform)
            await asyncio.to_thread(platform.api().post, "/v1/pipelines", PIPELINE)
            sides = {"mcp": await stack.enter_async_context(serving(platform, Path.cwd()))}
            if arguments.against is not None:
                other = serving(platform, arguments.against.resolve())
                sides["against"] = await stack.enter_async_context(other)
            for name, version in (("now", NOW), ("before", BEFORE)):
                shown = await asyncio.to_thread(measured, platform, sides, version, arguments.calls)
                print(json.dumps({"protocol": name, "calls": arguments.calls, **shown}), flush=True)


@asynccontextmanager
async def serving(platform: Platform, checkout: Path) -> AsyncIterator[tuple[str, int]]:
    """Run `hocket mcp --http` from a checkout; yield its address and process id."""
    words = ["-m", "hocket.cli", "--data-dir", str(platform.data_dir), "mcp", "--http"]
    folders = [str(checkout / name) for name in ("schemas", "services", "workers")]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        "--port",
        "0",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().split()[-1], process.pid
    finally:
        process.terminate()
        await process.wait()


def measured(
    platform: Platform, sides: Mapping[str, tuple[str, int]], version: str, calls: int
) -> dict[str, Any]:
    """Return what calls under one protocol took beyond the same runs over REST, measured in
    alternation."""
    key = {"Authorization": f"Bearer {platform.api_key}"}
    rest = Kept(platform.api_url, key)
    clients = {
        name: Kept(address, key | headers_of(version)) for name, (address, _) in sides.items()
    }
    asked = {"pipeline": NAME, "input": GIVEN, "wait_ms": WAIT_MS}
    took: dict[str, list[float]] = {}
    cpu_ms: dict[str, float] = {}
    for number in range(calls + WARM_UP):
        if number == WARM_UP:
            took = {}
            cpu_ms = {name: cpu_ms_of(pid) for name, (_, pid) in sides.items()}
        run = timed(took.setdefault("rest", []), lambda: rest.post("/v1/runs", asked))
        assert run["output"] == {"text": "Hello Ada"}, run
        body = request_of(version, number)
        for name, client in clients.items():
            answer = timed(took.setdefault(name, []), lambda: client.post("/mcp", body))  # noqa: B023
            assert answer["result"]["structuredContent"]["output"] == run["output"], answer
    direct_ms = statistics.median(took["rest"])
    shown: dict[str, Any] = {"rest_p50_ms": round(direct_ms, 2)}
    for name, (_, pid) in sides.items():
        p50_ms = statistics.median(took[name])
        shown[name] = {
            "p50_ms": round(p50_ms, 2),
            "added_p50_ms": round(p50_ms - direct_ms, 2),
            "cpu_ms_a_call": round((cpu_ms_of(pid) - cpu_ms[name]) / calls, 2),
        }
    return shown


def headers_of(version: str) -> dict[str, str]:
    """Return the headers of a client's requests under a protocol version."""
    found = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}
    return found | ({"Mcp-Method": "tools/call", "Mcp-Name": NAME} if version == NOW else {})


def request_of(version: str, number: int) -> dict[str, Any]:
    """Return the request that calls the tool."""
    params: dict[str, Any] = {"name": NAME, "arguments": GIVEN}
    if version == NOW:
        params["_meta"] = {
            f"{META}/protocolVersion": version,
            f"{META}/clientInfo": {"name": "bench", "version": "1"},
            f"{META}/clientCapabilities": {},
        }
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


class Kept:
    """A client with one keep-alive connection."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        place = urlsplit(url)
        self._headers = headers | {"Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)

    def post(self, path: str, body: Any) -> Any:
        """Send a JSON body and return the decoded answer."""
        self._connection.request("POST", path, json.dumps(body).encode(), self._headers)
        answer = self._connection.getresponse()
        data = answer.read()
        assert answer.status in range(200, 300), data
        return json.loads(data)


def timed(took_ms: list[float], do: Callable[[], Any]) -> Any:
    """Return the result of a call, and append its duration to `took_ms`."""
    began = time.perf_counter()
    found = do()
    took_ms.append((time.perf_counter() - began) * 1000)
    return found


def cpu_ms_of(pid: int) -> float:
    """Return the CPU time of a process in milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--against", type=Path, default=None)
    asyncio.run(main(parser.parse_args()))
