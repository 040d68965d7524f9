"""Where a running platform can be reached: `run/platform.json` in its data folder.

It is written when everything is ready, and removed at the end. A file left behind by a killed process is
recognised by its process id and, in a file beside it (so that earlier releases can read the facts), by
what tells that process from later ones with the same id: somebody else may have its ports by now. It
holds the passwords of NATS and Postgres, so only its owner may read it. Other files beside it name the
folder of large values, if the platform keeps them in one, and the machine and container of the process:
elsewhere, its id says nothing.
"""

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "platform.json"
PROCESS = "platform.process"
BLOBS = "platform.blobs"
PLACE = "platform.place"


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    """The addresses of a running platform, and the process that supervises it."""

    pid: int
    version: str
    data_dir: str
    nats_url: str
    database_url: str
    api_url: str | None
    processes: dict[str, int]


@dataclass(frozen=True, slots=True)
class LeftFacts:
    """Facts of a platform that does not run, as far as is known here: the id of its process, their file,
    and whether the process was one of this machine, since it started, and of this container; None for
    facts of a release that did not write this."""

    pid: int
    file: Path
    was_here: bool | None


def default_data_dir() -> Path:
    """Return the user's data folder for Hocket (XDG base directory specification)."""
    base = os.environ.get("XDG_DATA_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return root / "hocket"


def write_facts(data_dir: Path, facts: PlatformFacts, *, blobs: Path | None = None) -> None:
    """Write the file atomically, so that nobody reads half of it; `blobs` is the folder of large values,
    if the platform keeps them in files."""
    path = _path(data_dir)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(facts), file, indent=2)
        file.write("\n")
    identity = _identity(facts.pid)
    if identity is not None:
        path.with_name(PROCESS).write_text(identity, "ascii")
    path.with_name(BLOBS).write_text("" if blobs is None else str(blobs), "utf-8")
    path.with_name(PLACE).write_text(_place(facts.pid) or "", "utf-8")
    draft.replace(path)


def blobs_of(facts: PlatformFacts) -> Path | None:
    """Return the folder in which a platform keeps large values; None if it has them elsewhere."""
    file = _path(Path(facts.data_dir)).with_name(BLOBS)
    if not file.is_file():  # of an earlier release
        return Path(facts.data_dir) / "blobs"
    named = file.read_text("utf-8")
    return Path(named) if named else None


def read_facts(data_dir: Path) -> PlatformFacts | None:
    """Return the facts of the platform that runs on this folder; None if none does. Raises
    DataFolderUnreadable."""
    facts, is_running = _found(data_dir)
    return facts if is_running else None


def left_facts(data_dir: Path) -> LeftFacts | None:
    """Return what the last platform on this folder left, if its facts are there and it is not known to
    run; otherwise None. Raises DataFolderUnreadable."""
    facts, is_running = _found(data_dir)
    if facts is None or is_running:
        return None
    path = _path(data_dir)
    try:
        written = path.with_name(PLACE).read_text("utf-8")
    except (OSError, ValueError):
        written = ""
    was_here = written == _place(facts.pid) if written.startswith(f"{facts.pid} ") else None
    return LeftFacts(facts.pid, path, was_here)


def _found(data_dir: Path) -> tuple[PlatformFacts | None, bool]:
    """Return the facts that are written in this folder, if any, and whether their platform runs."""
    try:
        if not _path(data_dir).is_file():  # reading a named pipe would block
            return None, False
        facts = PlatformFacts(**json.loads(_path(data_dir).read_text("utf-8")))
        return facts, _lives(facts.pid) and not _is_another(data_dir, facts.pid)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None, False
    except OSError as error:
        from hocket.kit.process.data_folder_errors import DataFolderUnreadable

        raise DataFolderUnreadable(data_dir=data_dir, reason=error.strerror) from error
    except (ValueError, TypeError, OverflowError, RecursionError):  # of another release, or damaged
        return None, False


def remove_facts(data_dir: Path) -> None:
    """Remove the file if it is ours; do nothing if the folder cannot be read."""
    from hocket.kit.process.data_folder_errors import DataFolderUnreadable

    try:
        facts = read_facts(data_dir)
    except DataFolderUnreadable:
        return
    if facts is None or facts.pid == os.getpid():
        with suppress(NotADirectoryError, IsADirectoryError):
            _path(data_dir).unlink(missing_ok=True)
            for name in (PROCESS, BLOBS, PLACE):
                _path(data_dir).with_name(name).unlink(missing_ok=True)


def _path(data_dir: Path) -> Path:
    return data_dir / "run" / FILE


def _lives(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_another(data_dir: Path, pid: int) -> bool:
    """Tell whether the process with that id is known not to be the one that wrote the facts."""
    file = _path(data_dir).with_name(PROCESS)
    if not file.is_file():  # of an earlier release
        return False
    written = file.read_text("ascii")
    return written.split()[:1] == [str(pid)] and written != _identity(pid)


def _identity(pid: int) -> str | None:
    from hocket.kit.child_processes.launcher import identity

    return identity(pid)


def _place(pid: int) -> str | None:
    """Return a text about where a process with this id would be if it were one that we can see: the same
    id is of another process on another machine, after a restart of this one, or in another container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{pid} {boot} {os.readlink('/proc/self/ns/pid')} {socket.gethostname()}\n"
    except OSError:
        return None
