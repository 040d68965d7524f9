"""Describe the machine, and report the CPU time and memory of the processes below one. Linux only."""

import os
import platform as machine
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

SPEED_ROUNDS = 50
MIB = 1024 * 1024
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def children(root: int) -> list[int]:
    """Return all descendants of a process (Linux: /proc/PID/stat, field 4 is the parent)."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found[1:]


def cpu_s(root: int) -> Mapping[str, float]:
    """Return user and system time of all descendants of a process, by name. The time of ended processes
    is counted with their parents (fields 14 to 17)."""
    used: defaultdict[str, float] = defaultdict(float)
    for pid in children(root):
        if fields := _stat(pid):
            used[_name(pid)] += sum(int(field) for field in fields[11:15]) / CLOCK_TICKS
    return used


def exact_cpu_s(pid: int) -> float:
    """Return the CPU time of a process's threads to the nanosecond; `cpu_s` counts ticks of 10 ms."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _name(pid: int) -> str:
    """Return `postgres`, `nats-server`, or the module that a Python process runs."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text("utf-8").replace("\0", " ").split()
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    modules = [word for word in words if word.startswith("hocket.")]
    return modules[0] if modules else Path(words[0]).name.rstrip(":") if words else "ended"


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third (the state) on; empty if the process has
    ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def rss_bytes(pid: int) -> int:
    try:
        resident = Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(resident) * os.sysconf("SC_PAGE_SIZE")


def machine_text() -> str:
    """Describe this machine and its load."""
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    load = os.getloadavg()[0]
    batch = os.sched_getscheduler(0) == os.SCHED_BATCH
    return (
        f"machine: {os.cpu_count()} x {cpus[0] if cpus else machine.machine()}, "
        f"{memory_gib:.0f} GiB, Linux {machine.release()}, Python {machine.python_version()}; "
        f"load {load:.2f} before the start{', SCHED_BATCH' if batch else ''}; {speed_text()}"
    )


def speed_text() -> str:
    """Report how fast this machine runs Python at the moment: a guest on a crowded host is slower."""
    times_ms = []
    for _ in range(SPEED_ROUNDS):
        begin_s = time.perf_counter()
        sum(number * number for number in range(100_000))
        times_ms.append((time.perf_counter() - begin_s) * 1000)
    return f"100,000 squares take {min(times_ms):.1f} to {max(times_ms):.1f} ms"
