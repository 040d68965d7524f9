"""How long a process has to stop: run as one, with bounds of tenths of a second."""

import subprocess
import sys
from pathlib import Path

import pytest

PROCESS = """
import asyncio
from hocket.kit.process import lifecycle

lifecycle.STOP_TIMEOUT_S = 0.1

async def main(service):
    {asks}
    service.stopping.set()
    await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0.05)
    print("ended by itself")

lifecycle.run("coordinator", main)
"""


@pytest.mark.parametrize(
    ("asks", "ended"), [("pass", False), ("service.part('a').needs_to_stop(60)", True)]
)
def test_a_process_stops_in_its_own_time_where_it_asked_for_it(
    asks: str, ended: bool, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESS.format(asks=asks)],
        env={"HOCKET_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("ended by itself" in done.stdout) is ended, done.stderr
    assert ("service_stop_timed_out" in done.stdout + done.stderr) is not ended
