"""Journals written by the processes under test, one short line per event.

What a journal contains did happen, whatever became of the process. A line is one `write` to a file
opened for appending, so lines of several processes never mix.
"""

import os
from dataclasses import dataclass
from pathlib import Path

FOLDER = "CHAOS_JOURNALS"
ATTEMPTS = "attempts"
CALLS = "calls"
DELIVERIES = "deliveries"
"""Journal of each time that a handler with a journal of its own began a step."""
UNITS = "units"
"""Journal of what such handlers do once: `run|step|unit`."""


@dataclass(frozen=True)
class Entry:
    """What happened (`begun`, `ended`), to which attempt or call, in which process, and when (Unix
    time)."""

    what: str
    subject: str
    pid: int
    at_s: float


def write(name: str, what: str, subject: str, at_s: float) -> None:
    """Append an entry to a journal."""
    path = Path(os.environ[FOLDER]) / name
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{what} {subject} {os.getpid()} {at_s:.6f}\n".encode())
    os.close(file)


def read(folder: Path, name: str) -> list[Entry]:
    """Return all entries of a journal in the order in which they were written."""
    path = folder / name
    lines = path.read_text().splitlines() if path.exists() else []
    words = [line.split() for line in lines]
    return [Entry(what, subject, int(pid), float(at_s)) for what, subject, pid, at_s in words]
