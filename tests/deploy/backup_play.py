"""`make backup-test`: a backup of a platform under load, restored on an empty one.

Every run that was acknowledged before the backup began must be there and succeed. For a later run that
is missing, the answer must mention the backup and the restoration."""

import asyncio
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import asyncpg

from hocket.cli.backups import folder as backups
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.cli.terminal.errors import ApiRefused
from hocket.kit.embedded import EmbeddedServers

SECONDS = 10
LATER_S = 3
"""How long tasks continue to be submitted after the backup."""
SETTLED_S = 90
PIPELINE = {
    "pipeline": "kept",
    "slo_ms": 600_000,
    "input": {"type": "object"},
    "nodes": {
        "first": {
            "type": "python",
            "handler": "hocket.workers.builtin:sleep",
            "with": {"seconds": 0.3},
        },
        "second": {
            "type": "python",
            "handler": "hocket.workers.builtin:echo",
            "with": {"n": "{{ nodes.first.output }}"},
        },
    },
}


class Load(threading.Thread):
    """Submits tasks until it is stopped, and records when each was acknowledged."""

    def __init__(self, platform: Platform) -> None:
        super().__init__(daemon=True)
        self._api = platform.api()
        self.acknowledged: dict[str, float] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            with suppress(Exception):
                run_id = self._api.post("/v1/runs", {"pipeline": "kept", "input": {}})["run_id"]
                self.acknowledged[run_id] = time.time()


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hocket-backup-") as name:
        top = Path(name)
        async with EmbeddedServers(top / "one") as servers:
            urls = {"nats_url": servers.nats_url, "database_url": servers.database_url}
            async with Platform(top / "platform", **urls) as platform:
                await asyncio.to_thread(platform.api().post, "/v1/pipelines", PIPELINE)
                load = Load(platform)
                load.start()
                await asyncio.sleep(SECONDS)
                began = time.time()
                manifest = await backups.take(top / "backup", **urls)
                took_s = time.time() - began
                await asyncio.sleep(LATER_S)
                load.stopping.set()
                await asyncio.to_thread(load.join)
        before = [run_id for run_id, at in load.acknowledged.items() if at < began]
        later = [run_id for run_id, at in load.acknowledged.items() if at > began + took_s]
        print(f"{len(before)} tasks acknowledged before the backup, which took {took_s:.1f} s")
        print(f"rows: {manifest['tables']['hocket.run']} runs; messages: {manifest['messages']}")
        async with EmbeddedServers(top / "two") as servers:
            urls = {"nats_url": servers.nats_url, "database_url": servers.database_url}
            began = time.time()
            await backups.put_back(top / "backup", **urls, replicas=1)
            print(f"restored in {time.time() - began:.1f} s")
            async with Platform(top / "platform-2", **urls) as platform:
                left = await _left(servers.database_url, before)
                untold = await asyncio.to_thread(_untold, platform.api(), later)
        if left:
            sys.exit(f"FAILED: {len(left)} of {len(before)} runs: {dict(list(left.items())[:5])}")
        if untold or not later:
            sys.exit(f"FAILED: of {len(later)} later tasks nobody is told: {untold[:5]}")
        print(f"{len(before)} of {len(before)} runs are there once and have succeeded")
        print(f"{len(later)} tasks that came after it: whoever asks is told of the restoration")


def _untold(api: Api, later: list[str]) -> list[str]:
    """Return the later runs that are missing and whose answer does not explain it."""
    untold = []
    for run_id in later:
        try:
            api.get(f"/v1/runs/{run_id}")
        except ApiRefused as refused:
            told = refused.info()
            if (
                told.code != "run_unknown"
                or not {"backup_at", "restored_at"} <= told.details.keys()
            ):
                untold.append(run_id)
    return untold


async def _left(database_url: str, wanted: list[str]) -> dict[str, str]:
    """Return the wanted runs that have not succeeded, once all have or time is up."""
    connection = await asyncpg.connect(database_url)
    until = time.monotonic() + SETTLED_S
    try:
        while True:
            rows = await connection.fetch("SELECT run_id, status FROM hocket.run")
            states = {row["run_id"]: row["status"] for row in rows}
            left = {i: states.get(i, "lost") for i in wanted if states.get(i) != "succeeded"}
            if not left or time.monotonic() > until:
                return left
            await asyncio.sleep(0.5)
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
