"""`hocket doctor` names what is ready and yet not well."""

import asyncio
import json
import os
from pathlib import Path

from hocket.cli.doctor import processes
from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.remote.target import Target
from hocket.kit.process.lifecycle import Health
from hocket.kit.process.platform_facts import PlatformFacts, remove_facts, write_facts


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


def test_a_platform_that_was_killed_is_told_from_one_that_was_stopped(tmp_path: Path) -> None:
    target = Target(tmp_path, is_folder_named=True)
    assert processes.platform(target).verdict is Verdict.NOTE
    write_facts(tmp_path, PlatformFacts(os.getpid(), "", str(tmp_path), "", "", None, {}))
    earlier = f"{os.getpid()} 1 another-boot\n"  # a process that had the same id
    (tmp_path / "run" / "platform.process").write_text(earlier)

    found = processes.platform(Target(tmp_path, is_folder_named=True))
    assert (found.verdict, found.cure) == (Verdict.FAILED, "Start it again: hocket up")
    assert str(os.getpid()) in found.found
    place = tmp_path / "run" / "platform.place"
    here = place.read_text()
    place.write_text(f"{os.getpid()} of another machine")
    found = processes.platform(Target(tmp_path, is_folder_named=True))
    assert found.verdict is Verdict.NOTE
    assert "another container" in found.found
    assert f"hocket up. If it has moved, remove {tmp_path / 'run' / 'platform.json'}" in found.cure
    place.unlink()  # as an earlier release leaves it
    found = processes.platform(Target(tmp_path, is_folder_named=True))
    assert found.verdict is Verdict.NOTE
    assert found.found.startswith("none is running")
    place.write_text(here)
    named = Target(tmp_path, is_folder_named=True, named_api="http://127.0.0.1:1")
    assert processes.platform(named).verdict is Verdict.OK

    remove_facts(tmp_path)
    assert processes.platform(Target(tmp_path, is_folder_named=True)).verdict is Verdict.NOTE
