"""Inject faults into a running platform, a few at a time, each on a different target.

Each fault leaves every process running or about to be restarted.

A freeze of Postgres also stops its sessions. A rewind restarts NATS with earlier copies of those
streams that are written without fsync (LOG, STEPS, CALLS, EVENTS and the coordinators' leases); the
copies were taken a moment before. This is what a power failure may lose. TASKS, USAGE, DLQ and JOURNALS
are fsynced before they are acknowledged, and are left as they are.
"""

import asyncio
import os
import shutil
import signal
import time
from asyncio import Task
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.plan import FREEZE, KILL, REWIND, SERVERS, TERM, Fault
from chaos.team_workers import TeamWorker
from hocket.cli.local.platform import Platform
from hocket.cli.terminal.errors import ProcessNotReady
from hocket.schemas import subjects

MAX_AT_ONCE = 2
READY_S = 180.0
"""How long a part may take to become ready, on a busy machine and beside another fault."""
RECONNECT_S = 3.0
"""How long after an outage a process may take to send its backlog."""
STOP_S = 2.0
"""A graceful stop would take longer; the server loses its tail in any case."""
NOBODY: Mapping[str, TeamWorker] = {}
KEPT = (subjects.TASKS, subjects.USAGE, subjects.DLQ, subjects.JOURNALS)


@dataclass
class _Outage:
    """A period in which some process could not send."""

    began_s: float
    ended_s: float = float("inf")


@dataclass(frozen=True)
class Death:
    """A killed process (Unix times): `mute_s` is when it became unable to send what it had, and by
    `gone_s` it was certainly dead."""

    target: str
    mute_s: float
    gone_s: float


class Injection:
    """Injects faults and counts them.

    `dead` maps the killed processes to the time from which they could not send what they had: the kill,
    or the begin of a NATS outage (or a freeze) during which it happened. `deaths` has the period in
    which each of them died.
    """

    def __init__(
        self,
        platform: Platform,
        *,
        team: Mapping[str, TeamWorker] = NOBODY,
        at_once: int = MAX_AT_ONCE,
    ) -> None:
        self._at_once = at_once
        self._team = team
        self.counts: Counter[str] = Counter()
        self.dead: dict[int, float] = {}
        self.deaths: list[Death] = []
        self._outages: list[_Outage] = []
        self._running: dict[str, Task[None]] = {}
        self._platform = platform

    async def begin(self, fault: Fault) -> None:
        """Begin a fault as soon as its target has none and fewer than the maximum are active. Raises
        what an earlier fault has raised."""
        while fault.target in self._running or len(self._running) >= self._at_once:
            await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
            self._clear()
        self._running[fault.target] = asyncio.create_task(self._inject(fault), name=fault.name)

    async def end(self) -> None:
        """Wait until no fault is active."""
        if self._running:
            await asyncio.wait(self._running.values())
        self._clear()

    def _clear(self) -> None:
        ended = {target: task for target, task in self._running.items() if task.done()}
        for target, task in ended.items():
            del self._running[target]
            task.result()

    async def _inject(self, fault: Fault) -> None:
        outage = _Outage(time.time())
        if fault.kind == FREEZE or fault.target == "nats":
            self._outages.append(outage)
        try:
            await self._do(fault)
        finally:
            outage.ended_s = time.time()
        self.counts[fault.name] += 1

    async def _do(self, fault: Fault) -> None:
        if fault.kind == KILL:
            await self._kill(fault.target)
        elif fault.kind == FREEZE:
            await self._freeze(fault.target, fault.hold_s)
        elif fault.kind == TERM:
            await self._term(fault.target)
        else:
            assert fault.kind == REWIND, fault
            await self._rewind(fault.hold_s)

    async def _kill(self, target: str) -> None:
        if target in SERVERS:
            server = getattr(self._platform.servers, target)
            await server.kill()
            await server.wait_ready(timeout_s=READY_S)
            return
        if target in self._team:
            await self._team[target].kill()
            return
        mute_s = time.time()
        for outage in reversed(self._outages):
            if outage.ended_s > mute_s - RECONNECT_S:
                mute_s = min(mute_s, outage.began_s)
        self.dead[self._platform.process(target).pid] = mute_s
        await self._platform.kill(target)
        self.deaths.append(Death(target, mute_s, time.time()))

    async def _freeze(self, target: str, hold_s: float) -> None:
        pids = self._pids(target)
        _signal(pids, signal.SIGSTOP)
        try:
            await asyncio.sleep(hold_s)
        finally:
            _signal(pids, signal.SIGCONT)

    async def _term(self, target: str) -> None:
        """Stop and start a process, again and again if a server that it needs goes down meanwhile: a
        process that has never been ready is not supervised."""
        process = self._platform.process(target)
        deadline_s = time.monotonic() + READY_S
        while True:
            await process.stop()
            await process.start()
            try:
                await process.wait_ready(timeout_s=READY_S)
            except ProcessNotReady:
                if time.monotonic() > deadline_s:
                    raise
            else:
                return

    async def _rewind(self, tail_s: float) -> None:
        nats = self._platform.servers.nats
        store = nats.store_dir / "jetstream" / "HOCKET" / "streams"
        copy = self._platform.data_dir / "rewound"
        _signal([nats.pid], signal.SIGSTOP)  # files must not grow while they are copied
        try:
            await asyncio.to_thread(shutil.copytree, store, copy)
        finally:
            _signal([nats.pid], signal.SIGCONT)
        await asyncio.sleep(tail_s)
        await nats.stop(timeout_s=STOP_S)
        await asyncio.to_thread(_set_back, store, copy)
        await nats.start(timeout_s=READY_S)

    def _pids(self, target: str) -> list[int]:
        if target in self._team:
            return [self._team[target].pid]
        if target not in SERVERS:
            return [self._platform.process(target).pid]
        pid = getattr(self._platform.servers, target).pid
        return [pid, *_children(pid)]


def _set_back(store: Path, copy: Path) -> None:
    """Replace the streams that may lose their tail by their copies; streams created since then are
    lost."""
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
