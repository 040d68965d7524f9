"""`hocket dev` without a platform: how it ends."""

import subprocess
import sys

import pytest

STOPPED_BY = """
import asyncio, os, signal
from hocket.cli.local.development import until_signal

async def work(stopping):
    os.kill(os.getpid(), signal.{signal})
    await stopping.wait()
    print("stopped in order")

asyncio.run(until_signal(work))
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_it_stops_in_order_also_when_its_terminal_is_closed(signal: str) -> None:
    """Its workers have sessions of their own: the end of its terminal does not reach them."""
    code = STOPPED_BY.format(signal=signal)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"stopped in order\n")
