"""What the template of the tests forks behaves as what Python starts."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from hocket.kit.child_processes.launcher import identity
from support.shared.processes import TESTS, can_be_forked, started_with_output

WAIT_S = 60.0
NO_DATABASE = {"HOCKET_DATABASE_URL": "mysql://here"}
WITHOUT_NATS = {"NATS_URL": "nats://127.0.0.1:1"}

PARENT = """
import asyncio, json, sys
from support.shared.processes import started_with_output

async def main():
    process = await started_with_output("hocket.gateway", json.loads(sys.argv[1]))
    await process.stdout.readline()
    print(process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_one_that_cannot_start_says_the_same_and_ends_alike() -> None:
    env = {**os.environ, **NO_DATABASE, "HOCKET_LOG_FORMAT": "json"}
    usual = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.ledger", env=env, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await usual.communicate()
    process = await started_with_output("hocket.ledger", env, errors_too=True)
    assert process.stdout is not None
    forked = await process.stdout.read()
    assert await process.wait() == usual.returncode != 0
    assert forked == output
    assert b"`HOCKET_DATABASE_URL` is not valid" in forked


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_signals_end_it(number: signal.Signals, tmp_path: Path) -> None:
    env = {**os.environ, **WITHOUT_NATS, "HOCKET_DATA_DIR": str(tmp_path)}
    process = await started_with_output("hocket.gateway", env)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), WAIT_S)  # it waits for NATS
    process.send_signal(number)
    code = await asyncio.wait_for(process.wait(), WAIT_S)
    assert code == -number if number == signal.SIGKILL else code >= 0
    assert identity(process.pid) is None


async def test_it_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:

    env = {**os.environ, **WITHOUT_NATS, "HOCKET_DATA_DIR": str(tmp_path)}
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, json.dumps(env), stdout=PIPE, cwd=TESTS
    )
    assert parent.stdout is not None
    async with asyncio.timeout(WAIT_S):
        pid = int(await parent.stdout.readline())
        recorded = identity(pid)
        assert recorded is not None
        parent.kill()
        await parent.wait()
        while identity(pid) == recorded:  # noqa: ASYNC110 - not our child to wait for
            await asyncio.sleep(0.01)


def test_what_python_reads_at_its_start_is_not_left_out(tmp_path: Path) -> None:
    assert can_be_forked("hocket.gateway", os.environ)
    assert not can_be_forked("service", os.environ)
    assert not can_be_forked("hocket.gateway", {**os.environ, "PYTHONHASHSEED": "7"})
    (tmp_path / "sitecustomize.py").touch()
    assert not can_be_forked("hocket.gateway", {**os.environ, "PYTHONPATH": str(tmp_path)})
