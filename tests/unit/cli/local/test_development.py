"""`hocket dev` without a platform: how it ends, and how its workers do."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.cli.commands.platform import dev
from hocket.cli.local import development
from hocket.cli.local.development import Sources, WorkerProcesses
from hocket.cli.remote.target import Target
from hocket.schemas.pipeline.spec import Pipeline

BOUND_S = 60.0

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


async def test_a_worker_that_ends_by_itself_is_told_once(tmp_path: Path) -> None:
    """Its steps would otherwise wait, and nobody would know for what."""
    (tmp_path / "team.py").write_text("import os\nos._exit(7)\n")
    sources = Sources(tmp_path / "p.yaml", workers=("team:worker",), folder=tmp_path)
    workers = WorkerProcesses(sources, Target(tmp_path, named_nats="nats://127.0.0.1:1"))
    await workers.start()
    (process,) = workers._processes
    async with asyncio.timeout(BOUND_S):
        await process.wait()
    assert workers.ended() == ["team:worker ended with exit code 7"]
    assert workers.ended() == []
    await workers.stop()


async def test_a_platform_that_it_starts_uses_the_nats_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks would go to a server that no coordinator of the platform reads."""
    seen: dict[str, object] = {}

    def platform(*_: object, **given: object) -> None:
        seen.update(given)
        raise KeyboardInterrupt

    monkeypatch.setattr("hocket.cli.local.platform.Platform", platform)
    target = Target(tmp_path, named_nats="nats://a:4222")
    with pytest.raises(KeyboardInterrupt):
        await dev._with_platform(target, Sources(tmp_path / "p.yaml"), "", None)
    assert seen["nats_url"] == "nats://a:4222"


def test_it_waits_for_a_run_as_long_as_the_longest_may_take() -> None:
    """It ended with an error in its own code after a day, while a person's approval was waited for."""
    (longest,) = Pipeline.model_fields["slo_ms"].metadata[1:]
    assert longest.le < development.RUN_TIMEOUT_S * 1_000
