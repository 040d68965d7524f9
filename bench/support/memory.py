"""Record the memory of each process of a platform as a curve over time. Linux only.

A process counts with its resident set. Postgres counts with the proportional set of all its sessions,
so that buffers that they share are counted once.
"""

import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hocket.cli.local.platform import Platform
from hocket.kit.embedded.errors import ServerStopped

KIB_PER_MIB = 1024
GONE = (OSError, ServerStopped)
"""Exceptions raised for a process that does not exist at the moment."""


class Curve:
    """Samples in MiB by process name, each also printed on stderr."""

    def __init__(self, platform: Platform) -> None:
        self.samples: list[dict[str, float]] = []
        self._platform = platform
        self._began_s = time.monotonic()

    def sample(self, note: str = "") -> dict[str, float]:
        """Take a sample, print it with a note, and return it."""
        found = memory_mib(self._platform)
        self.samples.append(found)
        shown = "  ".join(f"{name} {mib:.0f}" for name, mib in found.items())
        print(
            f"{time.monotonic() - self._began_s:7.1f} s  {shown}  MiB  {note}",
            file=sys.stderr,
            flush=True,
        )
        return found

    def peak(self, first: int = 0) -> dict[str, float]:
        """Return the largest value of each process, from sample number `first` on."""
        names = {name for one in self.samples[first:] for name in one}
        return {
            name: round(max(one.get(name, 0.0) for one in self.samples[first:]), 1)
            for name in sorted(names)
        }


def memory_mib(platform: Platform) -> dict[str, float]:
    """Return the memory of each process in MiB, leaving out those that do not exist at the moment."""
    found: dict[str, float] = {}
    for name, process in platform.processes.items():
        with suppress(*GONE):
            found[name] = _kib(process.pid, "status", "VmRSS") / KIB_PER_MIB
    servers = platform.servers
    with suppress(*GONE):
        found["nats"] = _kib(servers.nats.pid, "status", "VmRSS") / KIB_PER_MIB
    with suppress(*GONE):
        pid = servers.postgres.pid
        found["postgres"] = sum(_pss(one) for one in (pid, *children(pid))) / KIB_PER_MIB
    return found


def children(pid: int) -> Iterable[int]:
    """Return the direct children of a process."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _pss(pid: int) -> float:
    try:
        return _kib(pid, "smaps_rollup", "Pss")
    except OSError:  # a session that has ended
        return 0.0


def _kib(pid: int, file: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/{file}").read_text(), re.M)
    assert found is not None, f"{name} stands in every {file}"
    return float(found[1])
