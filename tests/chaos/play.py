"""One play of chaos: a platform, its load, the faults of a plan for a while, a quiet phase, and the
verdict."""

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from chaos import journal
from chaos.engines import Engines, Metered, running_engines
from chaos.injection import MAX_AT_ONCE, READY_S, Injection
from chaos.judgement.evidence import Evidence, gather, gather_at_rest
from chaos.judgement.judge import judge
from chaos.judgement.verdict import Verdict
from chaos.load import TENANT, Load, connected
from chaos.pipelines import PIPELINES
from chaos.plan import MAX_FREEZE_S, TEAM, Fault, faults
from chaos.team_workers import TeamWorker
from hocket.cli.local.platform import Platform
from support.places import PACKAGES

COORDINATORS = 2
WORKERS = 2
PARTITIONS = 4
ACK_WAIT_S = 2
SETTLE_S = 180.0
"""How long after the last fault it may take until one more run ends or one more message is processed."""
MAX_SETTLE_S = 1_200.0
"""How long everything may take to end: a busy machine has a backlog by then."""
LOOK_S = 0.25
UNSETTLED = """
SELECT (SELECT count(*) FROM hocket.run WHERE finished_at IS NULL)
     + (SELECT count(*) FROM unnest($1::text[]) AS wanted(id)
        WHERE NOT EXISTS (SELECT FROM hocket.run WHERE run_id = wanted.id))
"""


@dataclass(frozen=True)
class Play:
    """The result of a play."""

    seed: int
    faults: Counter[str]
    tasks: int
    settled_s: float
    verdict: Verdict

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.verdict.violations

    def report(self) -> Iterator[str]:
        """Yield the lines to print."""
        for name, count in sorted(self.faults.items()):
            yield f"{count:6} x {name}"
        yield f"{self.faults.total():6} faults, {self.tasks} tasks accepted"
        for name, number in sorted(self.verdict.counts.items()):
            yield f"{number:6} {name}"
        yield f"everything had ended {self.settled_s:.1f} s after the last fault"
        for violation in self.verdict.violations:
            yield f"VIOLATION {violation}"
        yield f"seed {self.seed}: {len(self.verdict.violations)} violations"


async def play(
    seed: int,
    *,
    seconds: float = 0.0,
    number: int = 0,
    max_freeze_s: float = MAX_FREEZE_S,
    at_once: int = MAX_AT_ONCE,
    inline_gateway: bool = False,
) -> Play:
    """Play the plan of a seed for some seconds, or its first faults. If something was violated, the
    platform's folder is kept. With `inline_gateway` the gateways run in the workers, and share their
    faults."""
    folder = Path(tempfile.mkdtemp(prefix="hkt-"))
    journals = folder / "j"
    journals.mkdir()
    config = folder / "hocket.yaml"
    env = {
        "HOCKET_HANDLERS": "chaos.chaos_handlers",
        "PYTHONPATH": PACKAGES,
        journal.FOLDER: str(journals),
        "HOCKET_PARTITIONS": str(PARTITIONS),
    }
    async with AsyncExitStack() as stack:
        engines = await stack.enter_async_context(running_engines(seed))
        settings = {"models": engines.models(), "workers": {"ack_wait_s": ACK_WAIT_S}}
        config.write_text(yaml.safe_dump(settings))
        platform = Platform(
            folder / "d",
            workers=WORKERS,
            coordinators=COORDINATORS,
            env=env,
            config=config,
            inline_gateway=inline_gateway,
            ready_timeout_s=READY_S,
        )
        await stack.enter_async_context(platform)
        team = {name: TeamWorker(platform, env, folder / f"{name}.log") for name in TEAM}
        for worker in team.values():
            await stack.enter_async_context(worker.running())
        plan = faults(seed, max_freeze_s=max_freeze_s)
        if inline_gateway:
            plan = (fault for fault in plan if fault.target != "gateway")
        injection = Injection(platform, team=team, at_once=at_once)
        chosen = islice(plan, number or None)
        played = await _played(platform, engines, journals, injection, chosen, seconds)
    if played.ok:
        await asyncio.to_thread(shutil.rmtree, folder)
    else:
        print(f"the platform's folder with its logs is kept: {folder}", flush=True)
    return played


async def _played(
    platform: Platform,
    engines: Engines,
    journals: Path,
    injection: Injection,
    plan: Iterator[Fault],
    seconds: float,
) -> Play:
    api = platform.api(TENANT)
    for name, mixed in PIPELINES.items():
        await asyncio.to_thread(api.post, "/v1/pipelines", mixed.spec(name))
    load, stopping = Load(platform, engines.seed), asyncio.Event()
    await load.listen()
    publishing = asyncio.create_task(load.publish(stopping))
    tending = asyncio.create_task(load.tend())
    begun = 0
    try:
        until = time.monotonic() + seconds if seconds else float("inf")
        for fault in plan:
            await asyncio.sleep(fault.gap_s)
            if time.monotonic() >= until:
                break
            await injection.begin(fault)
            begun += 1
            print(f"{begun:5} {fault.name} {fault.hold_s:.2f}", flush=True)
            if publishing.done():
                break  # its error is raised below
        await injection.end()
        quiet = time.monotonic()
        stopping.set()
        await publishing
        await platform.wait_ready()
        await _settle(platform, load)
        settled_s = time.monotonic() - quiet
    finally:
        stopping.set()
        for task in (publishing, tending):
            task.cancel()
        await asyncio.gather(publishing, tending, return_exceptions=True)
    verdict = await _judged(platform, load, injection, journals, engines)
    await load.close()
    return Play(engines.seed, injection.counts, len(load.tasks), settled_s, verdict)


async def _settle(platform: Platform, load: Load) -> None:
    """Wait until all runs have ended and the work queues are empty, or until there was no progress for
    SETTLE_S. The verdict reports what has not ended by then."""
    connection = await connected(platform)
    wanted = [task.run_id for task in load.tasks]
    least = float("inf")
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_SETTLE_S), asyncio.timeout(SETTLE_S) as stuck:
            while left := await connection.fetchval(UNSETTLED, wanted) + await load.waiting():
                if left < least:
                    least = left
                    stuck.reschedule(asyncio.get_running_loop().time() + SETTLE_S)
                await asyncio.sleep(LOOK_S)
    await connection.close()


async def _judged(
    platform: Platform, load: Load, injection: Injection, journals: Path, engines: Engines
) -> Verdict:
    connection = await connected(platform)

    async def gathered(metered: list[Metered]) -> Evidence:
        tasks, heard = load.tasks, load.heard
        return await gather(connection, load.client, tasks, heard, journals, injection, metered)

    try:
        evidence = await gather_at_rest(engines.metered, gathered)
    finally:
        await connection.close()
    return judge(evidence)
