"""Measure what one team's dead or flooded queue costs another team on the same platform.

Two teams, `blue` and `red`, each have their own tenant, package and worker process (`hocket-worker`). A
run has two steps: one of the team's own type (`blue.rate`), and one of a type that both teams provide,
each with its own function (`desk.find`), separated by queues (`desk.find@blue`). A handler takes
`--handler-ms`.

Blue publishes `--rate` tasks per second until it has published `--runs`. The p99 of its runs, from
publishing a task to hearing its end, is measured while red does one of the following:

- `steady`: red publishes a quarter of that rate, and its worker keeps up;
- `dead`: the same tasks, but red's worker is dead, so its steps wait;
- `flooded`: red has `--backlog` runs waiting before blue begins, and publishes four times as many
  tasks.

Red's worker runs one step of each type at a time (25 a second), so what a flood adds to `steady` is a
long queue and a worker that is always busy.

The three are played in rotation, `--rounds` times, each on a new platform. Printed are a JSON line for
each play, and finally the median over rounds of p99 divided by the same round's `steady` p99. Each play
ends with a check that no function of one team was called for a run of the other.

    .venv/bin/python -m bench.scheduling.two_teams
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop
from nats.aio.msg import Msg

from bench.support.machine import machine_text
from bench.support.processes import percentile
from hocket.cli.local.platform import Platform
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

TEAMS = ("blue", "red")
PLAYS = ("steady", "dead", "flooded")
SHARE_OF_RED = 0.25
WARM_UP_RUNS = 50
MAX_RATIO = 1.10
BOUND_S = 120.0
POLL_S = 0.1
PACKAGE = '''
import asyncio
import os

from hocket.worker import Context, Worker

worker = Worker(queues=("default", "{team}"))
calls = open("calls", "a", buffering=1)


async def work(name: str, given: dict[str, str], context: Context) -> dict[str, str]:
    print(name, context.step.run_id, context.step.tenant, given["team"], file=calls)
    await asyncio.sleep({seconds})
    return {{"team": given["team"], "by": "{team}"}}


@worker.node("{team}.rate", concurrency={slots})
async def rate(given: dict[str, str], context: Context) -> dict[str, str]:
    """Rate what a team found."""
    return await work("rate", given, context)


@worker.node("desk.find", concurrency={slots})
async def find(given: dict[str, str], context: Context) -> dict[str, str]:
    """Find what a team rates."""
    return await work("find", given, context)
'''


class DoesNotHold(Exception):
    """A step reached the wrong team, a run failed, or a team waited for the other."""


@dataclass
class Team:
    """One team's tasks, and the calls of its functions."""

    name: str
    folder: Path
    client: nats.NATS
    latencies_ms: list[float] = field(default_factory=list)
    run_ids: set[str] = field(default_factory=set)
    _waiting: dict[str, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inbox = self.client.new_inbox()
        self._jetstream = self.client.jetstream(publish_async_max_pending=20_000)
        self._numbers = 0

    @property
    def pipeline(self) -> dict[str, Any]:
        """The team's pipeline: find, then rate."""
        team = {"team": "{{ input.team }}"}
        return {
            "pipeline": "work",
            "slo_ms": 600_000,
            "on_overload": "admit",
            "nodes": {
                "find": {"type": "desk.find", "queue": self.name, "with": team},
                "rate": {"type": f"{self.name}.rate", "needs": ["find"], "with": team},
            },
        }

    async def listen(self) -> None:
        """Listen for the ends of runs."""
        await self.client.subscribe(f"{self._inbox}.*", cb=self._ended)

    async def run(self) -> None:
        """Publish a task, wait until its run has succeeded, and record how long that took."""
        began_s = time.perf_counter()
        ended = await self.publish()
        async with asyncio.timeout(BOUND_S):
            end = await ended
        self.latencies_ms.append(1000 * (time.perf_counter() - began_s))
        if end["status"] != "succeeded" or end["output"] != {"team": self.name, "by": self.name}:
            raise DoesNotHold(f"a run of {self.name} ended {end['status']}: {end}")
        self.run_ids.add(end["run_id"])

    async def publish(self) -> asyncio.Future[dict[str, Any]]:
        """Publish a task, and return a future for its end."""
        self._numbers += 1
        ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[str(self._numbers)] = ended
        await self._jetstream.publish_async(
            subjects.task(self.name, "work"),
            json.dumps({"team": self.name}).encode(),
            headers={REPLY_TO: f"{self._inbox}.{self._numbers}"},
        )
        return ended

    def calls(self) -> list[list[str]]:
        """Return the calls of the team's functions: name, run, tenant, and the team in the input of
        each."""
        return [line.split() for line in (self.folder / "calls").read_text().splitlines()]

    async def _ended(self, message: Msg) -> None:
        waiting = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(json.loads(message.data))


@dataclass
class Stage:
    """A platform with both teams on it."""

    platform: Platform
    teams: dict[str, Team]
    workers: dict[str, asyncio.subprocess.Process]

    @classmethod
    @asynccontextmanager
    async def open(cls, slots: dict[str, int], handler_ms: float) -> AsyncIterator["Stage"]:
        """Start the platform and each team's worker, and apply the pipelines."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hkt-")))
            services = ("coordinator", "admin")
            platform = Platform(folder / "d", services=services, log_level="warning")
            await stack.enter_async_context(platform)
            client = await nats.connect(platform.nats_url)
            stack.push_async_callback(client.close)
            stage = cls(platform, {}, {})
            for name in TEAMS:
                team = stage.teams[name] = Team(name, folder / name, client)
                team.folder.mkdir()
                text = PACKAGE.format(team=name, slots=slots[name], seconds=handler_ms / 1000)
                (team.folder / f"{name}_package").with_suffix(".py").write_text(text)
                await team.listen()
                stage.workers[name] = await stage._start(team)
                stack.push_async_callback(stage.kill, name)
                await asyncio.to_thread(platform.api(name).post, "/v1/pipelines", team.pipeline)
            await stage._until_served()
            yield stage

    async def kill(self, name: str) -> None:
        """Kill a team's worker, as a crash would."""
        worker = self.workers[name]
        if worker.returncode is None:
            worker.kill()
        await worker.wait()

    def check_calls(self) -> dict[str, int]:
        """Return the number of calls of each team's functions. Raises DoesNotHold if one was for the
        other team, or if a step of a successful run has no call."""
        counts = {}
        for name, team in self.teams.items():
            calls = team.calls()
            strangers = [call for call in calls if call[2:] != [name, name]]
            if strangers:
                raise DoesNotHold(f"{name} was called for another team: {strangers[:3]}")
            for function in ("find", "rate"):
                missing = team.run_ids - {call[1] for call in calls if call[0] == function}
                if missing:
                    raise DoesNotHold(f"{name}'s {function} was not called for {len(missing)} runs")
            counts[name] = len(calls)
        return counts

    async def _start(self, team: Team) -> asyncio.subprocess.Process:
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        with (team.folder / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hocket.worker.command", f"{team.name}_package:worker",
                cwd=team.folder, env=kept | {"HOCKET_DATA_DIR": str(self.platform.data_dir)},
                stdout=log, stderr=log,
            )  # fmt: skip

    async def _until_served(self) -> None:
        """Wait until each team's types and queues have a worker."""
        wanted = {("desk.find", name) for name in TEAMS} | {(f"{n}.rate", "default") for n in TEAMS}
        api = self.platform.api()
        async with asyncio.timeout(BOUND_S):
            while True:
                found = await asyncio.to_thread(api.get, "/v1/types", limit=500)
                served = {
                    (one["type"], queue["queue"] or "default")
                    for one in found["types"]
                    for queue in one["queues"]
                    if queue["workers"]
                }
                if wanted <= served:
                    return
                await asyncio.sleep(POLL_S)


async def both(stage: Stage, runs: int, at_once: int) -> dict[str, int]:
    """Let both teams run `runs` tasks, `at_once` at a time each, and return the number of calls of each
    team's functions."""

    async def one_after_the_other(team: Team, left: Any) -> None:
        for _ in left:
            await team.run()

    async with asyncio.TaskGroup() as group:
        for team in stage.teams.values():
            left = iter(range(runs))
            for _ in range(at_once):
                group.create_task(one_after_the_other(team, left))
    for team in stage.teams.values():
        if len(team.run_ids) != runs:
            raise DoesNotHold(f"{len(team.run_ids)} of {runs} runs of {team.name} ended")
    return stage.check_calls()


async def play(kind: str, given: argparse.Namespace) -> dict[str, Any]:
    """Measure blue's runs while red behaves as `kind` says."""
    async with Stage.open({"blue": given.slots, "red": 1}, given.handler_ms) as stage:
        blue, red = (stage.teams[name] for name in TEAMS)
        await both(stage, WARM_UP_RUNS, 4)
        if kind == "dead":
            await stage.kill("red")
        red_rate = given.rate * SHARE_OF_RED
        if kind == "flooded":
            red_rate *= 4
            for _ in range(given.backlog):
                await red.publish()
            await until_waiting(stage, given.backlog // 2)
        blue.latencies_ms.clear()
        load = asyncio.create_task(publish_at(red, red_rate))
        await paced(blue, given.rate, given.runs)
        load.cancel()
        stage.check_calls()
        times = sorted(blue.latencies_ms)
        open_runs = await runs_open(stage)
        found = {"play": kind, "runs": len(times), "red_open_at_the_end": open_runs}
        return found | {f"p{n}_ms": round(percentile(times, n / 100), 1) for n in (50, 90, 99)}


async def paced(team: Team, rate: float, runs: int) -> None:
    """Run tasks that arrive at a fixed rate, regardless of earlier ones."""
    began_s = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(runs):
            await asyncio.sleep(max(0.0, began_s + number / rate - time.monotonic()))
            group.create_task(team.run())


async def publish_at(team: Team, rate: float) -> None:
    """Publish tasks at a fixed rate without waiting for their ends."""
    began_s, number = time.monotonic(), 0
    while True:
        number += 1
        await asyncio.sleep(max(0.0, began_s + number / rate - time.monotonic()))
        await team.publish()


async def runs_open(stage: Stage) -> int:
    """Return the number of red's runs that are accepted and have not ended."""
    connection = await asyncpg.connect(stage.platform.database_url, timeout=BOUND_S)
    try:
        return int(await connection.fetchval(_OPEN))
    finally:
        await connection.close()


async def until_waiting(stage: Stage, runs: int) -> None:
    """Wait until `runs` runs of red are open."""
    async with asyncio.timeout(BOUND_S):
        while await runs_open(stage) < runs:  # noqa: ASYNC110 - not our process
            await asyncio.sleep(POLL_S)


async def main(given: argparse.Namespace) -> None:
    """Play, print, and check."""
    print(machine_text(), file=sys.stderr)
    ratios: dict[str, list[float]] = {kind: [] for kind in PLAYS}
    for _ in range(given.rounds):
        found = {kind: await play(kind, given) for kind in PLAYS}
        for kind, figures in found.items():
            ratios[kind].append(figures["p99_ms"] / found["steady"]["p99_ms"])
            print(json.dumps(figures), flush=True)
    medians = {kind: round(statistics.median(values), 3) for kind, values in ratios.items()}
    print(json.dumps({"p99_by_steady": medians, "rounds": given.rounds}))
    if max(medians.values()) > MAX_RATIO:
        raise DoesNotHold(f"blue's p99 grew by more than {MAX_RATIO - 1:.0%}: {medians}")


_OPEN = "SELECT count(*) FROM hocket.run WHERE tenant = 'red' AND finished_at IS NULL"


def arguments(texts: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1_000, help="of blue, measured")
    parser.add_argument("--rate", type=float, default=40.0, help="blue's tasks a second")
    parser.add_argument("--backlog", type=int, default=2_000, help="runs of red in a flood")
    parser.add_argument("--handler-ms", type=float, default=40.0)
    parser.add_argument("--slots", type=int, default=4, help="of each type in blue's worker")
    parser.add_argument("--isolation", action="store_true", help="only that no step goes astray")
    return parser.parse_args(texts)


async def isolation(given: argparse.Namespace) -> None:
    """Let both teams run `--runs` tasks, and print the number of calls of each team's functions."""
    async with Stage.open(dict.fromkeys(TEAMS, 16), handler_ms=1.0) as stage:
        calls = await both(stage, given.runs, 16)
    print(json.dumps({"runs_each": given.runs, "calls": calls, "astray": 0}))


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    options = arguments()
    try:
        uvloop.run(isolation(options) if options.isolation else main(options))
    except DoesNotHold as error:
        print(f"does not hold: {error}", file=sys.stderr)
        sys.exit(1)
