"""Run real workflow DAGs on the real stack; check that each task runs once and in order, and the
makespan.

The instances are WfCommons' (WfFormat, gzipped JSON) in `wfinstances` of the shared data folder
(`../shared/data`, or `HOCKET_DATA`). Each is imported as `hocket import wfformat --scale 0.01` does it
and executed once on a platform of its own: embedded NATS and Postgres (fsync on), coordinator, separate
worker processes with more slots than any instance is wide. A task sleeps for its scaled runtime, never
less, and its handler writes a journal of when it began and ended. The following is checked from that
journal and the file alone, not from what Hocket reports:

- every task of the file began once and ended once;
- none began before all of its parents had ended;
- the makespan, from just before the task event is published to the end of the run as heard by the
  publisher (after the commit), is at most 1.05 x the critical path of the file's scaled runtimes plus
  20 ms per level of the graph and 0.1 ms per task.

Instances whose critical path is short run one at a time, the others side by side, so that the whole
set takes little longer than its longest. An instance that was right but too slow is tried again, alone,
up to `--tries` times in all: a shared machine only ever makes a run slower. All tries are
printed. The exit code is 1 if a check fails.

    .venv/bin/python -m bench.throughput.workflows                     # all
    .venv/bin/python -m bench.throughput.workflows --max-s 20 montage  # names with this word, up to 20 s
"""

import argparse
import asyncio
import gzip
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import nats
import structlog
import uvloop
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.support.machine import machine_text
from bench.support.places import DATA, HANDLERS
from hocket.cli.importing.wfformat import pipeline_of
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

FOLDER = DATA / "wfinstances"
TENANT = "default"
SCALE = 0.01
SLOTS = 2_048
PATH_FACTOR = 1.05
PER_LEVEL_MS = 20.0
PER_TASK_MS = 0.1
LONG_S = 6.0
"""Instances with at least this critical path run side by side."""
STAGGER_S = 0.25
MORE_THAN_PATH_S = 60.0
"""How long beyond its critical path a run may take before the bench gives up."""
CONNECT_TIMEOUT_S = 10.0


class DoesNotHold(Exception):
    """Something that must hold does not."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A workflow as described by its file; `seconds` are the scaled runtimes."""

    name: str
    document: Any
    parents: Mapping[str, Sequence[str]]
    seconds: Mapping[str, float]

    @classmethod
    def read(cls, path: Path, scale: float) -> "Instance":
        """Read a gzipped WfFormat file, without the importer's help."""
        document = json.loads(gzip.decompress(path.read_bytes()))
        workflow = document["workflow"]
        return cls(
            path.name.removesuffix(".json.gz"),
            document,
            {task["id"]: task["parents"] for task in workflow["specification"]["tasks"]},
            {t["id"]: scale * t["runtimeInSeconds"] for t in workflow["execution"]["tasks"]},
        )

    @property
    def levels(self) -> int:
        """The number of tasks on the longest path."""
        return round(self._longest(dict.fromkeys(self.parents, 1.0)))

    @property
    def path_s(self) -> float:
        """The critical path of the scaled runtimes."""
        return self._longest(self.seconds)

    def bound_ms(self, per_level_ms: float = PER_LEVEL_MS) -> float:
        """Return the longest acceptable makespan."""
        path_ms = PATH_FACTOR * 1000 * self.path_s
        return path_ms + per_level_ms * self.levels + PER_TASK_MS * len(self.parents)

    def _longest(self, lengths: Mapping[str, float]) -> float:
        ends: dict[str, float] = {}
        for task in TopologicalSorter(self.parents).static_order():
            ends[task] = lengths[task] + max((ends[p] for p in self.parents[task]), default=0.0)
        return max(ends.values())


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of an instance: its makespan as the publisher sees it, and from the first begin to the
    last end."""

    instance: Instance
    makespan_ms: float
    work_ms: float
    bound_ms: float

    @property
    def holds(self) -> bool:
        """Whether it was fast enough."""
        return self.makespan_ms <= self.bound_ms

    @property
    def overhead_ms(self) -> float:
        """Its duration beyond the critical path."""
        return self.makespan_ms - 1000 * self.instance.path_s


def instances(words: Sequence[str] = (), *, scale: float = SCALE) -> list[Instance]:
    """Return the instances whose names contain one of the words (all instances if there are no words).
    x"""
    found = [Instance.read(path, scale) for path in sorted(FOLDER.glob("*.json.gz"))]
    return [i for i in found if not words or any(word in i.name for word in words)]


class Workflows:
    """Runs instances on a platform and checks them against the journal."""

    def __init__(self, client: Client, api: Api, journal: Path, per_level_ms: float) -> None:
        self._per_level_ms = per_level_ms
        self._client = client
        self._api = api
        self._journal = journal
        self._ended: dict[str, asyncio.Future[bytes]] = {}
        self._inbox = client.new_inbox()

    async def start(self) -> None:
        """Listen for ends."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._heard)

    async def apply(self, instance: Instance) -> None:
        """Apply the instance as a pipeline."""
        pipeline = pipeline_of(
            instance.document, name=_name(instance), scale=SCALE, handler="handlers:replay"
        )
        await asyncio.to_thread(self._api.post, "/v1/pipelines", pipeline)

    async def run(self, instance: Instance) -> Outcome:
        """Run an instance once; raise DoesNotHold if a task was lost, repeated or too early."""
        token = str(len(self._ended))
        ended = self._ended[token] = asyncio.get_running_loop().create_future()
        headers = {REPLY_TO: f"{self._inbox}.{token}"}
        began_s = time.monotonic()
        await self._client.jetstream(timeout=CONNECT_TIMEOUT_S).publish(
            subjects.task(TENANT, _name(instance)), b"{}", headers=headers
        )
        async with asyncio.timeout(instance.path_s + MORE_THAN_PATH_S):
            end = json.loads(await ended)
        makespan_ms = 1000 * (time.monotonic() - began_s)
        if end["status"] != "succeeded":
            raise DoesNotHold(f"{instance.name} ended {end['status']}: {end['error']}")
        begins, ends = self._times(end["run_id"])
        check(instance, begins, ends)
        work_ms = 1000 * (max(e[0] for e in ends.values()) - min(b[0] for b in begins.values()))
        return Outcome(instance, makespan_ms, work_ms, instance.bound_ms(self._per_level_ms))

    def _times(self, run_id: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        begins: dict[str, list[float]] = defaultdict(list)
        ends: dict[str, list[float]] = defaultdict(list)
        with self._journal.open() as lines:
            for line in lines:
                if run_id in line:
                    _, task, what, at_s = json.loads(line)
                    (begins if what == "begin" else ends)[task].append(at_s)
        return begins, ends

    async def _heard(self, message: Msg) -> None:
        self._ended[message.subject.rpartition(".")[2]].set_result(message.data)


def check(
    instance: Instance,
    begins: Mapping[str, Sequence[float]],
    ends: Mapping[str, Sequence[float]],
) -> None:
    """Raise DoesNotHold unless each task began and ended once, after its parents."""
    for task in {*instance.parents, *begins, *ends}:
        if task not in instance.parents:
            raise DoesNotHold(f"{instance.name}: `{task}` is no task of it")
        times = (len(begins.get(task, ())), len(ends.get(task, ())))
        if times != (1, 1):
            raise DoesNotHold(f"{instance.name}: `{task}` began and ended {times} times")
        took_s = ends[task][0] - begins[task][0]
        if took_s < instance.seconds[task] - 1e-5:
            raise DoesNotHold(f"{instance.name}: `{task}` took {took_s} s only")
        for parent in instance.parents[task]:
            if begins[task][0] < ends[parent][0]:
                raise DoesNotHold(f"{instance.name}: `{task}` began before `{parent}` had ended")


async def run_all(
    found: Sequence[Instance],
    *,
    workers: int,
    tries: int,
    per_level_ms: float = PER_LEVEL_MS,
    long_s: float = LONG_S,
) -> list[list[Outcome]]:
    """Run all instances on a new platform, at first those of at least `long_s` side by side; return the
    tries of each."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        journal, config = Path(folder) / "journal", Path(folder) / "hocket.yaml"
        journal.touch()
        config.write_text(yaml.safe_dump({"node_types": {"python": {"concurrency": SLOTS}}}))
        platform = Platform(
            Path(folder) / "d",
            workers=workers,
            worker_types=("python",),
            services=("coordinator", "worker", "admin"),
            env={
                "HOCKET_HANDLERS": "handlers",
                "PYTHONPATH": HANDLERS,
                "WORKFLOW_JOURNAL": str(journal),
            },
            config=config,
            log_level="warning",
        )
        async with platform:
            client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            try:
                workflows = Workflows(client, platform.api(TENANT), journal, per_level_ms)
                await workflows.start()
                for instance in (*found, _WARMUP):
                    await workflows.apply(instance)
                await asyncio.gather(*(workflows.run(_WARMUP) for _ in range(10)))
                return await _run_on(workflows, found, tries, long_s)
            finally:
                await client.close()


async def _run_on(
    workflows: Workflows, found: Sequence[Instance], tries: int, long_s: float
) -> list[list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {instance.name: [] for instance in found}

    async def run(instance: Instance) -> None:
        outcomes[instance.name].append(await workflows.run(instance))
        _show(outcomes[instance.name][-1])

    side_by_side = sorted((i for i in found if i.path_s >= long_s), key=lambda i: -i.path_s)
    async with asyncio.TaskGroup() as tasks:
        for instance in side_by_side:
            tasks.create_task(run(instance))
            await asyncio.sleep(STAGGER_S)
        for instance in found:
            if instance.path_s < long_s:
                await run(instance)
    for _ in range(tries - 1):
        for instance in found:
            if not any(outcome.holds for outcome in outcomes[instance.name]):
                await run(instance)
    return list(outcomes.values())


async def main(arguments: argparse.Namespace) -> int:
    """Run, check and print; return the exit code."""
    found = [i for i in instances(arguments.words) if i.path_s <= arguments.max_s]
    if not found:
        print(f"no instance in {FOLDER}", file=sys.stderr)
        return 1
    print(machine_text(), file=sys.stderr)
    outcomes = await run_all(found, workers=arguments.workers, tries=arguments.tries)
    print(table(outcomes))
    good = sum(any(outcome.holds for outcome in tries) for tries in outcomes)
    first = sum(tries[0].holds for tries in outcomes)
    tasks = sum(len(instance.parents) for instance in found)
    print(
        f"{tasks} tasks of {len(found)} instances, each once and in order;"
        f" {good} within the bound, {first} of them at the first try"
    )
    return 0 if good == len(found) else 1


def table(outcomes: Iterable[Sequence[Outcome]]) -> str:
    """Return a Markdown table of all instances with the best try of each."""
    lines = [
        "| instance | tasks | levels | path ms | bound ms | makespan ms | beyond | work ms | tries |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for tries in outcomes:
        best = min(tries, key=lambda outcome: outcome.makespan_ms)
        instance = best.instance
        figures = (
            1000 * instance.path_s,
            best.bound_ms,
            best.makespan_ms,
            best.overhead_ms,
            best.work_ms,
        )
        cells = [instance.name, str(len(instance.parents)), str(instance.levels)]
        cells += [f"{figure:,.1f}" for figure in figures]
        cells.append(str(len(tries)) if any(t.holds for t in tries) else f"{len(tries)}, too slow")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _show(outcome: Outcome) -> None:
    instance = outcome.instance
    print(
        f"{'ok' if outcome.holds else 'SLOW':4s} {instance.name[:60]:60s}"
        f" {len(instance.parents):4d} tasks {instance.levels:3d} levels"
        f" path {1000 * instance.path_s:9.1f} bound {outcome.bound_ms:9.1f}"
        f" makespan {outcome.makespan_ms:9.1f} (+{outcome.overhead_ms:.1f}) ms",
        file=sys.stderr,
    )


def _name(instance: Instance) -> str:
    return "w-" + instance.name.replace("__", "-")[:60]


def _warmup() -> Instance:
    """A graph that makes every worker process import the handler and use its code paths once."""
    names = [f"t{n}" for n in range(60)]
    parents = {n: names[:1] if i < 30 else names[1:30] for i, n in enumerate(names)}
    parents[names[0]] = []
    document = {
        "name": "warmup",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": [{"id": n, "parents": p} for n, p in parents.items()]},
            "execution": {"tasks": [{"id": n, "runtimeInSeconds": 0.1} for n in names]},
        },
    }
    return Instance("warmup", document, parents, dict.fromkeys(names, 0.1 * SCALE))


_WARMUP = _warmup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="run instances whose names hold one of these")
    parser.add_argument("--max-s", type=float, default=float("inf"), help="longest critical path")
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    parser.add_argument("--tries", type=int, default=3, help="tries of one that is too slow")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        sys.exit(uvloop.run(main(parser.parse_args())))
    except* (DoesNotHold, TimeoutError) as group:
        for error in group.exceptions:
            print(f"does not hold: {error or 'a run did not end in time'}", file=sys.stderr)
        sys.exit(1)
