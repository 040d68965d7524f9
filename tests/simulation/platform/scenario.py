"""One play from a seed: a platform, pipelines, users, faults, and the checks."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hocket.kit.nats.bus import Bus
from simulation.checks.invariants import Checks
from simulation.engine.nats_transport import SimulatedTransport
from simulation.engine.world import RunsInCircles, World, replaced
from simulation.platform import hostile
from simulation.platform.bundles import bundling
from simulation.platform.compiled import shared
from simulation.platform.faults import Faults
from simulation.platform.handlers import CALLING
from simulation.platform.pipelines import CHILD, Generator, add_calls
from simulation.platform.platform import URL, Layout, Platform, idling_slowly
from simulation.platform.stumbles import stumbling
from simulation.platform.user import AGAIN, TENANT, Task, User

LIMIT_S = 1_500.0
"""Virtual time by which everything must have ended."""
QUIET_S = 1.0
"""What is left over must become visible within this time after everything has ended."""
LOOK_EVERY_S = 0.25
GENEROUS_MS = 600_000.0
FLOWING = "flows"
"""Seeds that begin with this play pipelines whose runs wait for each other."""
LATER_S = 1.2
"""When other versions of pipelines are applied."""


@dataclass
class Outcome:
    """The result of a play."""

    seed: str
    violation: tuple[str, str] | None
    """The check that failed, and the details."""
    trace_hash: str
    steps: int
    seconds: float
    runs: dict[str, int] = field(default_factory=dict)
    """Number of runs by status."""
    trace: list[tuple[float, str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """Everything that is drawn from a seed."""

    gentle: bool
    documents: list[dict[str, Any]]
    later: list[dict[str, Any]]
    """Versions that are applied while tasks arrive."""
    tasks: list[Task]
    layout: Layout
    faults: int
    faults_until_s: float
    dedup_s: float
    skews: tuple[float, ...]
    hostile: list[Task] = field(default_factory=list)
    """Those of the tasks that are hostile."""


def seed_of(kind: str, number: int) -> str:
    """Return the seed of a play; its beginning determines the kind of play."""
    return f"{kind}-{number}" if kind else str(number)


def plan_of(seed: str) -> Plan:
    """Draw a play; nothing of it depends on how the play develops."""
    with shared():
        plan = _drawn(Random(f"{seed}:plan"))
        if seed.startswith(CALLING):
            add_calls(plan.documents, Random(f"{seed}:calls"))
        bomb, tasks = hostile.drawn(seed, plan.documents, plan.faults_until_s)
    documents = plan.documents if bomb is None else [*plan.documents, bomb]
    if seed.startswith(FLOWING):
        dice = Random(f"{seed}:flow")
        documents = _flowing(dice, documents)
        plan = replace(plan, tasks=_crowded(dice, plan.tasks))
    return replace(plan, documents=documents, tasks=[*plan.tasks, *tasks], hostile=tasks)


def _crowded(dice: Random, tasks: list[Task]) -> list[Task]:
    """Return more tasks, all for one pipeline, in quick succession."""
    found = []
    for number, task in enumerate(task for task in tasks for _ in range(3)):
        key = None if task.key is None else f"{task.key}-{number}"
        at_s = task.at_s + dice.uniform(0.0, 0.3)
        found.append(replace(task, pipeline="p0", key=key, at_s=at_s, again=None))
    return found


def _flowing(dice: Random, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pipelines with runs limited by keys, except the child pipeline."""
    key = "{{ input.n is defined and input.n is number and input.n > 4 }}"
    found = []
    for document in documents:
        flow: dict[str, Any] = {"concurrency": {"limit": dice.choice((1, 1, 2)), "key": key}}
        if dice.random() < 0.2:
            flow = {"singleton": {"mode": dice.choice(("skip", "cancel")), "key": key}}
        if dice.random() < 0.2:
            flow["debounce"] = {"wait_s": dice.choice((0.1, 0.5)), "key": key}
        found.append(document if document["pipeline"] == CHILD else document | {"flow": flow})
    return found


def _drawn(dice: Random) -> Plan:
    gentle = dice.random() < 0.5
    slo_ms = GENEROUS_MS if gentle else dice.choice((2_000.0, 8_000.0, 15_000.0))
    generator = Generator(dice, gentle=gentle)
    documents = [
        generator.pipeline(f"p{number}", slo_ms=slo_ms) for number in range(dice.randint(1, 2))
    ]
    documents.append(generator.pipeline(CHILD, slo_ms=slo_ms, sub=False))
    later = [generator.pipeline("p0", slo_ms=slo_ms)] if dice.random() < 0.2 else []
    until_s = dice.choice((1.5, 3.0))
    tasks = [
        _task(dice, number, gentle, documents, until_s) for number in range(dice.randint(2, 5))
    ]
    return Plan(
        gentle=gentle,
        documents=documents,
        later=later,
        tasks=tasks,
        layout=Layout(
            partitions=dice.choice((1, 2, 2, 3)),
            coordinators=dice.choice((1, 1, 2)),
            workers=dice.choice((1, 2)),
            slots=dice.choice((1, 3)),
            ack_wait_s=dice.choice((1.0, 3.0)),
            bare=dice.random() < 0.15,
        ),
        faults=dice.choice((0, 2, 4, 6)),
        faults_until_s=until_s,
        dedup_s=dice.choice((0.2, 2.0, 120.0)),
        skews=tuple(dice.uniform(-2, 2) if dice.random() < 0.2 else 0.0 for _ in range(6)),
    )


def _task(
    dice: Random, number: int, gentle: bool, documents: list[dict[str, Any]], until_s: float
) -> Task:
    headers: dict[str, str] = {}
    if dice.random() < 0.3:
        headers["Hocket-Reply-To"] = f"_INBOX.reply.{number}"
        headers["Hocket-Progress"] = dice.choice(("0", "1"))
    if not gentle and dice.random() < 0.2:
        headers["Hocket-Deadline-Ms"] = str(dice.choice((500, 3_000)))
    return Task(
        at_s=dice.uniform(0.3, until_s if dice.random() < 0.75 else until_s + 2.0),
        pipeline=dice.choice(documents)["pipeline"],
        key=f"k{number}" if dice.random() < 0.8 else None,
        input={"n": dice.randint(0, 9), "xs": list(range(dice.randint(0, 4)))},
        headers=headers,
        repeats_s=tuple(dice.choice((0.0, 0.3, 2.5)) for _ in range(dice.choice((0, 0, 1, 2)))),
        cancel_after_s=dice.random() * 2 if dice.random() < 0.12 else None,
        early_signal=dice.random() < 0.1,
        again=dice.choice(AGAIN) if dice.random() < 0.15 else None,
    )


def play(
    seed: str,
    *,
    bug: Callable[[], AbstractContextManager[Any]] = nullcontext,
    verbose: bool = False,
) -> Outcome:
    """Play a seed to its end, or to the first violation."""
    collecting = gc.isenabled()
    gc.disable()  # a garbage collection would run code of dead processes at odd moments
    try:
        return _played(seed, bug, verbose=verbose)
    finally:
        if collecting:
            gc.enable()


def _played(seed: str, bug: Callable[[], AbstractContextManager[Any]], *, verbose: bool) -> Outcome:
    world = World(seed, verbose=verbose)
    plan = plan_of(seed)
    platform = Platform(world, plan.layout)
    platform.server.jetstream.duplicate_window_s = plan.dedup_s
    for document in plan.documents:
        platform.database.apply(TENANT, document)
    for document in plan.later:
        world.after(LATER_S, platform.database.apply, TENANT, document)

    class Transport(SimulatedTransport):
        server = platform.server

    raised: list[str] = []
    rules = hostile.raising(raised) if plan.hostile else nullcontext()
    stumbles = stumbling(world)
    play_as = bundling(seed)
    with replaced(world, Transport), shared(), idling_slowly(), play_as, bug(), rules, stumbles:
        platform.start()
        for process, skew_s in zip(platform.processes.values(), plan.skews, strict=False):
            process.skew_s = skew_s
        user = User(
            world.process("user"),
            platform.database,
            plan.tasks,
            partitions=plan.layout.partitions,
        )
        faults = Faults(
            platform,
            world.dice("faults"),
            count=plan.faults,
            from_s=0.3,
            until_s=plan.faults_until_s,
        )
        checks = Checks(platform, user, faults, plan, raised)
        user.process.start(user.run(URL))
        with checks.watching(Bus):
            _play_on(world, checks)
        platform.journal.closed = True
        return Outcome(
            seed=seed,
            violation=checks.violation,
            trace_hash=world.trace_hash(),
            steps=world.steps,
            seconds=world.now_s,
            runs=checks.statuses(),
            trace=world.trace,
        )


def _play_on(world: World, checks: Checks) -> None:
    def look() -> None:
        if checks.violation is not None or checks.is_over():
            world.stop()
        else:
            world.after(LOOK_EVERY_S, look)

    world.after(LOOK_EVERY_S, look)
    try:
        ended = world.run(LIMIT_S)
        if ended and checks.violation is None:
            world.run(world.now_s + QUIET_S)
    except RunsInCircles as error:
        checks.fail("circles", str(error))
        return
    if checks.violation is None:
        try:
            checks.at_end(ended=ended)
        except Exception as error:
            checks.fail("checks-broke", f"{type(error).__name__}: {error}")
