"""Two releases of Hocket side by side, and processes that are rolled from one to the other.

The previous release is built from its commit and installed in its own environment; the other one is the
present tree."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from dataclasses import dataclass
from pathlib import Path

from hocket.cli.local.process_plan import PlannedProcess
from hocket.cli.local.processes import health_url, is_ready
from support.places import ROOT

PINNED = "cbb78a32d56ce03b2a5addd3041986454bf73df2"
"""The previous release, as long as no commit has a tag: schema 0040, before usage was partitioned by
time, and before restorations, grants and periods of tenants."""
BOOK_LATER = frozenset({PINNED})
"""Releases whose ledgers cannot book into the present schema, so that calls wait in USAGE until a newer
ledger runs (docs/how-to/upgrade.md): 0041 partitioned the table of calls. None may be added."""
READY_S = 120.0
STOP_S = 40.0
"""Longer than the time that a process allows itself: it must end by itself, and is not killed."""


@dataclass(frozen=True)
class Release:
    """An installed release."""

    name: str
    python: Path

    def hocket(self, *arguments: str, **environment: str) -> None:
        """Run a command of this release."""
        done = subprocess.run(
            [self.python, "-m", "hocket.cli", *arguments],
            env={**os.environ, **environment},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}: {arguments}: {done.stdout}{done.stderr}"


PRESENT = Release("present", Path(sys.executable))


def previous_commit() -> str:
    """Return the commit of the last tag before this one, or the pinned one if there is no tag."""
    found = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else PINNED


def built(folder: Path, commit: str) -> Release:
    """Build a commit's wheel, and install it with the packages that it locks. The folder may be kept:
    an installation of the same commit is reused."""
    done = folder / "installed"
    python = folder / "venv" / "bin" / "python"
    if done.exists() and done.read_text() == commit:
        return Release(commit[:12], python)
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, at=source)
    (wheel,) = folder.glob("*.whl")
    _run(sys.executable, "-m", "venv", folder / "venv", at=folder)
    pip = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check")
    _run(*pip, "--require-hashes", "-r", source / "requirements.lock", at=folder)
    _run(*pip, wheel, at=folder)
    shutil.rmtree(source)
    done.write_text(commit)
    return Release(commit[:12], python)


def _run(*command: str | Path, at: Path) -> None:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}"


class RolledProcess:
    """One process of a platform, which is ended with SIGTERM and can be restarted from any release."""

    def __init__(self, planned: PlannedProcess, data_dir: Path) -> None:
        self.name = planned.name
        self.release = ""
        self._planned = planned
        self._data_dir = data_dir
        self._process: Process | None = None

    async def start(self, release: Release) -> None:
        """Start it from a release, and wait until it is ready."""
        log = self._data_dir / "logs" / f"{self.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(release.python, "-m", self._planned.module, *self._planned.arguments),
                env=dict(self._planned.env),
                cwd="/",
                stdout=output,
                stderr=output,
            )
        self._process, self.release = process, release.name
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if process.returncode is not None:
                break
            url = health_url(self._data_dir / "run", process.pid)
            if url is not None and await is_ready(url):
                return
            await asyncio.sleep(0.05)
        said = log.read_text()[-2_000:]
        raise AssertionError(f"{self.name} of {release.name} ended or is not ready: {said}")

    async def stop(self) -> float:
        """Ask it to end, and return how long that took. It must end by itself, with exit code 0."""
        if self._process is None:
            return 0.0
        process, self._process = self._process, None
        began = time.monotonic()
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AssertionError(f"{self.name} of {self.release} did not end by itself") from None
        assert code == 0, f"{self.name} of {self.release} ended with {code}"
        return time.monotonic() - began

    async def roll(self, release: Release) -> float:
        """Replace it by a process of a release; return how long the old one took to end."""
        took_s = await self.stop()
        await self.start(release)
        return took_s

    async def kill(self) -> None:
        """Kill it, when the play is over anyway."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
