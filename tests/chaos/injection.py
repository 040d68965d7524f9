"""Faults done to a running platform, one after the other; each leaves every process running or on its
way back.

A freeze of Postgres stops its sessions, too. A rewind starts NATS on a copy of its store, taken a
moment earlier, of the streams that are written without fsync (LOG, STEPS, CALLS, EVENTS and the
coordinators' leases): that is what a loss of power may take. TASKS, USAGE and DLQ are fsynced before
they are acknowledged and stay.
"""

import asyncio
import os
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from chaos.plan import FREEZE, KILL, REWIND, SERVERS, TERM, Fault
from hocket.cli.platform import Platform
from hocket.schemas import subjects

RECONNECT_S = 3.0
"""How long after an outage a process may need until it has sent what waited."""
KEPT = (subjects.TASKS, subjects.USAGE, subjects.DLQ)


class Injection:
    """Breaks things and counts.

    `dead` are the processes that were killed, with the moment since which they could not send what
    they had: the kill, or the begin of an outage of NATS (or of a freeze) that it came upon.
    """

    def __init__(self, platform: Platform) -> None:
        self.counts: Counter[str] = Counter()
        self.dead: dict[int, float] = {}
        self._outages: list[tuple[float, float]] = []
        self._platform = platform

    async def inject(self, fault: Fault) -> None:
        """Do one fault, and end it."""
        began_s = time.time()
        if fault.kind == KILL:
            await self._kill(fault.target)
        elif fault.kind == FREEZE:
            await self._freeze(fault.target, fault.hold_s)
        elif fault.kind == TERM:
            await self._term(fault.target)
        else:
            assert fault.kind == REWIND, fault
            await self._rewind(fault.hold_s)
        self.counts[fault.name] += 1
        if fault.kind == FREEZE or fault.target == "nats":
            self._outages.append((began_s, time.time()))

    async def _kill(self, target: str) -> None:
        if target in SERVERS:
            server = getattr(self._platform.servers, target)
            await server.kill()
            await server.wait_ready()
            return
        mute_s = time.time()
        for began_s, ended_s in reversed(self._outages):
            if ended_s > mute_s - RECONNECT_S:
                mute_s = min(mute_s, began_s)
        self.dead[self._platform.process(target).pid] = mute_s
        await self._platform.kill(target)

    async def _freeze(self, target: str, hold_s: float) -> None:
        pids = self._pids(target)
        _signal(pids, signal.SIGSTOP)
        try:
            await asyncio.sleep(hold_s)
        finally:
            _signal(pids, signal.SIGCONT)

    async def _term(self, target: str) -> None:
        process = self._platform.process(target)
        await process.stop()
        await process.start()
        await process.wait_ready()

    async def _rewind(self, tail_s: float) -> None:
        nats = self._platform.servers.nats
        store = nats.store_dir / "jetstream" / "$G" / "streams"
        copy = self._platform.data_dir / "rewound"
        _signal([nats.pid], signal.SIGSTOP)  # a file that grows while it is copied is no copy
        try:
            await asyncio.to_thread(shutil.copytree, store, copy)
        finally:
            _signal([nats.pid], signal.SIGCONT)
        await asyncio.sleep(tail_s)
        await nats.stop()
        await asyncio.to_thread(_set_back, store, copy)
        await nats.start()

    def _pids(self, target: str) -> list[int]:
        if target not in SERVERS:
            return [self._platform.process(target).pid]
        pid = getattr(self._platform.servers, target).pid
        return [pid, *_children(pid)]


def _set_back(store: Path, copy: Path) -> None:
    """Replace the streams that may lose their tail by their copies; one made since is lost."""
    assert {subjects.LOG, subjects.STEPS} <= {folder.name for folder in copy.iterdir()}, copy
    for folder in store.iterdir():
        if folder.name not in KEPT:
            shutil.rmtree(folder)
    for folder in copy.iterdir():
        if folder.name not in KEPT:
            folder.rename(store / folder.name)
    shutil.rmtree(copy)


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
