"""`hocket doctor` names what is ready and yet not well."""

import asyncio
import json
import os
from pathlib import Path

from hocket.cli.doctor import processes
from hocket.cli.doctor.findings import Finding, Verdict
from hocket.kit.process.lifecycle import Health


async def _examined(health: Health, run_dir: Path) -> Finding:
    body = json.dumps(health.as_json()).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    pid = os.getpid()
    (run_dir / f"gateway-{pid}.json").write_text(json.dumps({"health_url": url}))
    try:
        return await processes._process(run_dir, "gateway", pid)
    finally:
        server.close()


async def test_a_refused_reload_is_found_though_the_process_is_ready(tmp_path: Path) -> None:
    health = Health()
    health.report("routing", True, "old routes; reload refused: bad", degraded=True)
    assert health.ready
    found = await _examined(health, tmp_path)
    assert (found.verdict, found.found) == (
        Verdict.FAILED,
        "routing: old routes; reload refused: bad",
    )
    health.report("routing", True, "3 models")
    assert (await _examined(health, tmp_path)).verdict is Verdict.OK
