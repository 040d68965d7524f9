"""The sources of a pipeline in development: the files that are watched, and the processes of its
workers."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hocket.cli.remote.target import Target
from hocket.cli.terminal.errors import FileUnreadable
from hocket.worker.connection import NATS_VARIABLES
from hocket.worker.reload import times_of

STOP_S = 15.0
"""A worker that takes longer to drain is killed."""

Marks = Mapping[str, object]
"""By file, a value that changes when the file does."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources: the pipeline's file, the input in the form that `hocket run` accepts, and the workers
    (`module:worker`), whose code is all Python files below `folder`."""

    pipeline: Path
    given: str | None = None
    pairs: Sequence[str] = ()
    workers: Sequence[str] = ()
    folder: Path = field(default_factory=Path.cwd)

    def files(self) -> Marks:
        """Return the marks of the pipeline and, if it is a file, of the input."""
        paths = [self.pipeline]
        if self.given is not None and self.given.startswith("@") and self.given != "@-":
            paths.append(Path(self.given[1:]))
        return {str(one): _mark(one) for one in paths}

    def code(self) -> Marks:
        """Return the marks of the workers' code."""
        return dict(times_of(self.folder)) if self.workers else {}


class WorkerProcesses:
    """The workers in development, each in its own process."""

    def __init__(self, sources: Sources, target: Target) -> None:
        self._sources = sources
        self._target = target
        self._processes: dict[asyncio.subprocess.Process, str] = {}

    def ended(self) -> list[str]:
        """Return how workers ended that nobody stopped, each once."""
        ended = [process for process in self._processes if process.returncode is not None]
        return [
            f"{self._processes.pop(one)} ended with exit code {one.returncode}" for one in ended
        ]

    async def start(self) -> None:
        """Start them; they print their own messages."""
        environment = {
            "HOCKET_LOG_LEVEL": "error",  # this command shows the outcome of runs itself
            **os.environ,
            "HOCKET_DATA_DIR": str(self._target.data_dir),
            **dict.fromkeys(NATS_VARIABLES, self._target.nats_url),
        }
        for named in self._sources.workers:
            command = ("-m", "hocket.worker.command", named)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                cwd=self._sources.folder,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # we handle Ctrl-C, and let them drain
            )
            self._processes[process] = named

    async def stop(self) -> None:
        """Let them drain, and stop them."""
        processes, self._processes = self._processes, {}
        for process in processes:
            with suppress(ProcessLookupError):
                process.terminate()
        for process in processes:
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def changed_file(before: Marks, after: Marks) -> str:
    """Return the name of a changed file."""
    names = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{os.path.relpath(names[0])}{more}"


def _mark(file: Path) -> object:
    """Return a value that changes when the file does. Raises FileUnreadable if the file never
    existed."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None  # an editor is replacing the file
    except OSError as error:
        raise FileUnreadable(path=str(file), reason=error.strerror or "unreadable") from error
    return (found.st_mtime_ns, found.st_size, found.st_ino)
