"""Run agent6 on Restate: its server, one process for the handler, and this process, which generates the
load.

Each step is a `ctx.run`, which Restate journals before the handler continues; the three middle steps
run in parallel.

    python restate_agent6.py RESTATE_SERVER FOLDER
"""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp
import hypercorn
import hypercorn.asyncio
import restate
from serving import BODY, serve

HOST = "127.0.0.1"
STARTED_S = 60.0
MAX_CONNECTIONS = 1_024

agent = restate.Service("Agent")


async def pass_along(value: dict[str, Any]) -> dict[str, Any]:
    """Return the input."""
    return {"text": value["text"]}


@agent.handler("run")
async def run(ctx: restate.Context, value: dict[str, Any]) -> dict[str, Any]:
    """plan -> {retrieve, sql, classify} -> llm -> verify."""
    planned = await ctx.run_typed("plan", pass_along, value=value)
    looked_up = [
        ctx.run_typed(name, pass_along, value=planned) for name in ("retrieve", "sql", "classify")
    ]
    await restate.gather(*looked_up)
    answered = await ctx.run_typed("llm", pass_along, value=await looked_up[0])
    return await ctx.run_typed("verify", pass_along, value=answered)


async def handle(port: int) -> None:
    """Serve the handler over HTTP/2."""
    config = hypercorn.Config()
    config.bind = [f"{HOST}:{port}"]
    config.h2_max_concurrent_streams = 2**31 - 1
    config.keep_alive_max_requests = 2**31 - 1
    await hypercorn.asyncio.serve(restate.app([agent]), config)


async def main(server: str, folder: Path) -> None:
    """Start the server and the handler, register the handler, and serve orders."""
    ingress, admin, node, handler = (free_port() for _ in range(4))
    settings = {
        "RESTATE_BASE_DIR": str(folder),
        "RESTATE_INGRESS__BIND_ADDRESS": f"{HOST}:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"{HOST}:{admin}",
        "RESTATE_BIND_ADDRESS": f"{HOST}:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://{HOST}:{node}/",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    log = (folder / "restate.log").open("w")
    processes = [
        await asyncio.create_subprocess_exec(
            server, env=os.environ | settings, stdout=log, stderr=log
        ),
        await asyncio.create_subprocess_exec(
            sys.executable, __file__, "handle", str(handler), stdout=log, stderr=log
        ),
    ]
    try:
        connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector) as session:
            await registered(session, admin, handler)

            async def one_run() -> None:
                async with session.post(
                    f"http://{HOST}:{ingress}/Agent/run", json=BODY
                ) as response:
                    assert response.status == 200, await response.text()
                    assert await response.json() == BODY

            await serve(one_run)
    finally:
        for process in processes:
            process.kill()  # their data is deleted with the folder
        await asyncio.gather(*(process.wait() for process in processes))


async def registered(session: aiohttp.ClientSession, admin: int, handler: int) -> None:
    """Register the handler with the server as soon as both respond."""
    async with asyncio.timeout(STARTED_S):
        while True:
            try:
                order = {"uri": f"http://{HOST}:{handler}"}
                async with session.post(f"http://{HOST}:{admin}/deployments", json=order) as answer:
                    if answer.status < 300:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


if sys.argv[1] == "handle":
    asyncio.run(handle(int(sys.argv[2])))
else:
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
