"""A pipeline in development: applied and rerun whenever its file, its input or its workers change.

States: watching (nothing has changed), working (applied, and a run in progress). A change during a run
cancels it. An error in a file is reported, and the next change is awaited.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from hocket.cli.commands.runs.runs import print_output, print_run, read_run, settled_run
from hocket.cli.drawing.run_difference import difference
from hocket.cli.local.development_sources import Sources, WorkerProcesses, changed_file
from hocket.cli.local.given_up_runs import GivenUpRuns
from hocket.cli.remote.api import known_run, path
from hocket.cli.remote.target import Target
from hocket.cli.remote.task import Task, publish_and_follow
from hocket.cli.terminal.console import notes, out, print_lines
from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable
from hocket.cli.terminal.progress import Progress
from hocket.cli.terminal.sources import read_text, task_input
from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline.document import parse_document
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.schemas.subjects import is_own_type

LOOK_S = 0.3
SERVED_S = 5.0
"""How long to wait for workers to appear; a run that begins earlier waits for them itself."""
RUN_TIMEOUT_S = 91 * 86_400.0
"""Longer than any run: a pipeline may wait for weeks, for a person's approval."""


class Development:
    """Watches the sources while `run` is active, and reacts to their changes."""

    def __init__(self, target: Target, sources: Sources) -> None:
        self._target = target
        self._sources = sources
        self._workers = WorkerProcesses(sources, target)
        self._given_up = GivenUpRuns(self._cancel)
        self._before: dict[str, Any] | None = None
        self._run_id = ""
        """The id of the run in progress, from when its task is sent; empty if there is none."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Watch and run until `stopping` is set."""
        code, files = self._sources.code(), self._sources.files()
        await self._workers.start()
        turn = asyncio.create_task(self._turn())
        try:
            while not stopping.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await stopping.wait()
                for told in self._workers.ended():
                    text = f"worker {told}; it is started again when a file changes"
                    notes.print(text, style="red")
                new_code, new_files = self._sources.code(), self._sources.files()
                if stopping.is_set() or (new_code, new_files) == (code, files):
                    continue
                await self._give_up(turn)
                if new_code != code:
                    await self._workers.stop()
                    await self._workers.start()
                changed = changed_file({**code, **files}, {**new_code, **new_files})
                notes.print(f"\n{changed} changed", style="dim", markup=False)
                code, files = new_code, new_files
                turn = asyncio.create_task(self._turn())
        finally:
            await self._give_up(turn)
            await self._workers.stop()
            await self._given_up.close()

    async def _turn(self) -> None:
        """Apply the pipeline, run it, and report the result and what has changed."""
        self._run_id = ""  # of a task that was refused
        try:
            document = parse_document(read_text(str(self._sources.pipeline)))
            plan = compile_pipeline(document)
            name = plan.pipeline.pipeline
            value = task_input(self._sources.given, list(self._sources.pairs))
            if self._sources.workers:
                types = {one.node.type for one in plan.by_path.values()}
                await self._until_served([one for one in types if is_own_type(one)])
            applied = await self._asked("post", "/v1/pipelines", document)
            for warning in applied["warnings"]:
                notes.print(f"Warning: {warning}", markup=False)
            version = f"{name} version {applied['version']}"
            notes.print(f"running {version} ...", style="dim", markup=False)
            headers = {"Hocket-Version": str(applied["version"])}  # another one may be activated
            await self._run(
                Task(tenant=self._target.tenant, pipeline=name, input=value, headers=headers)
            )
        except HocketError as error:
            notes.print(f"error: {error}", style="red", markup=False)
        notes.print("waiting for changes (Ctrl-C ends)", style="dim")

    async def _until_served(self, types: Iterable[str]) -> None:
        """Wait until workers take steps of these types, so that their start does not count as the run's
        time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVED_S):
                for name in types:
                    await self._served(name)

    async def _served(self, name: str) -> None:
        ask = self._target.api().get
        while True:
            with suppress(ApiRefused):  # the type is not known yet
                found = await asyncio.to_thread(ask, path("types", name))
                if found["is_served"]:
                    return
            await asyncio.sleep(LOOK_S / 3)

    async def _run(self, task: Task) -> None:
        def note_sending() -> None:
            self._run_id = task.run_id

        with Progress(notes, f"run {task.run_id}", shown=notes.is_terminal) as progress:
            end = await publish_and_follow(
                self._target.nats_url,
                task,
                look=partial(self._ended, task.run_id),
                on_step=progress.step,
                timeout_s=RUN_TIMEOUT_S,
                on_sending=note_sending,
            )
        self._run_id = ""
        assert end is not None, "a run ends by its deadline"
        api = self._target.api()
        await asyncio.to_thread(settled_run, api, task.run_id)
        found = await asyncio.to_thread(read_run, api, task.run_id, values=True)
        if found["run"]["output"] is not None:
            print_output(found["run"]["output"])
            out.print()
        print_run(found, output=False)
        if self._before is not None and self._before["run"]["pipeline"] == task.pipeline:
            out.print()
            print_lines(difference(self._before, found))
        self._before = found

    def _ended(self, run_id: str) -> dict[str, Any] | None:
        """Return a run if the API knows that it has ended."""
        try:
            run = known_run(self._target.api(), run_id)
        except ApiUnreachable:  # the end may also be reported over NATS
            return None
        return run if run is not None and run["finished_at"] is not None else None

    async def _give_up(self, turn: "asyncio.Task[None]") -> None:
        """End a turn, and cancel the run that it waits for."""
        if turn.done():
            turn.result()
            return
        turn.cancel()
        await asyncio.wait({turn})
        if run_id := self._run_id:
            self._run_id = ""
            await self._given_up.add(run_id)

    async def _cancel(self, run_id: str) -> None:
        body = {"reason": "its pipeline, input or worker has changed"}
        await self._asked("post", path("runs", run_id, "cancel"), body)

    async def _asked(self, method: str, place: str, body: Any) -> Any:
        ask: Callable[..., Any] = getattr(self._target.api(), method)
        return await asyncio.to_thread(ask, place, body)


async def until_signal(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` until SIGINT, SIGTERM or SIGHUP (its terminal was closed), which sets its event."""
    import signal

    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await work(stopping)
