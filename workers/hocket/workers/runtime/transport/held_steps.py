"""Records the steps that a worker holds in a file that outlives it. A worker that starts learns from it
what its predecessor held, and which steps were running when it died (`intake/after_worker_death.py`).

The file has a fixed size, is memory-mapped, and is locked as long as its worker lives; an unlocked file
belongs to a worker that ended without draining. It records whether each step waited, ran, or ran alone,
and what is held against each kind of step (`intake/suspicion.py`). Without a writable folder nothing is
recorded, and steps are redelivered after `ack_wait_s`.
"""

import fcntl
import mmap
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import structlog

MAX_HELD = 2_048
"""The most steps that are recorded; further ones are unknown when the worker dies."""
MAX_KINDS = 1_000
MAX_FILES = 64
"""The most files of ended workers that are read at one start."""
MAX_DEBT = 1_000_000
MAX_SUBJECT_BYTES = 214
WAITS, RUNS, ALONE = 1, 2, 3
_FREE = 0
_MAGIC = b"hocket held steps 1\n"
_HEAD_BYTES = 64
_STEP = struct.Struct(f"<BB40s{MAX_SUBJECT_BYTES}s")
_KIND = struct.Struct("<40sII")
_KINDS_AT = _HEAD_BYTES + MAX_HELD * _STEP.size
_SIZE = _KINDS_AT + MAX_KINDS * _KIND.size
_SUFFIX = ".held"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Held:
    """A step that an ended worker held; `how` is WAITS, RUNS or ALONE."""

    how: int
    kind: str
    ack_subject: str


@dataclass(frozen=True, slots=True)
class Left:
    """What an ended worker left: its steps, and for each kind what was held against it and how often its
    steps ended a worker while alone."""

    steps: list[Held]
    kinds: dict[str, tuple[int, int]]


class HeldSteps:
    """The records of this worker, from `open` to `close`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._file = -1
        self._map: mmap.mmap | None = None
        self._free: list[int] = []
        self._kinds: dict[str, int] = {}
        self._free_kinds: list[int] = []

    @property
    def is_open(self) -> bool:
        """Whether steps are being recorded."""
        return self._map is not None

    def open(self) -> None:
        """Create the file and start recording."""
        if self._folder is None:
            return
        path = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
        new = path.with_suffix(".new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(new, flags, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._file, 0, _SIZE)  # so that a full disk is reported here
            mapped = mmap.mmap(self._file, _SIZE)
            mapped[: len(_MAGIC)] = _MAGIC
            new.rename(path)
        except OSError as error:
            log.warning("held_steps_not_noted", folder=str(self._folder), reason=str(error))
            self._drop(new)
            return
        self._map, self._path = mapped, path
        self._free = list(range(MAX_HELD - 1, -1, -1))
        self._free_kinds = list(range(MAX_KINDS - 1, -1, -1))

    def close(self) -> None:
        """Remove the file: everything that this worker held was given back."""
        if self._map is not None and self._path is not None:
            self._map.close()
            self._map = None
            self._drop(self._path)

    def add(self, ack_subject: str, kind: str) -> int:
        """Record a waiting step and return its place, or -1 if it is not recorded."""
        subject = ack_subject.encode()
        if self._map is None or not self._free or len(subject) > MAX_SUBJECT_BYTES:
            return -1
        place = self._free.pop()
        at = _HEAD_BYTES + place * _STEP.size
        _STEP.pack_into(self._map, at, WAITS, len(subject), kind.encode(), subject)
        return place

    def moved(self, place: int, ack_subject: str) -> None:
        """Record another delivery of a step."""
        if self._map is not None and place >= 0:
            how, _, kind, _ = _STEP.unpack_from(self._map, _HEAD_BYTES + place * _STEP.size)
            subject = ack_subject.encode()[:MAX_SUBJECT_BYTES]
            at = _HEAD_BYTES + place * _STEP.size
            _STEP.pack_into(self._map, at, how, len(subject), kind, subject)

    def set(self, place: int, how: int) -> None:
        """Record how a step is held now."""
        if self._map is not None and place >= 0:
            self._map[_HEAD_BYTES + place * _STEP.size] = how

    def remove(self, place: int) -> None:
        """Record that a step is no longer held."""
        if self._map is not None and place >= 0:
            self._map[_HEAD_BYTES + place * _STEP.size] = _FREE
            self._free.append(place)

    def note_kind(self, kind: str, debt: int, deaths: int) -> None:
        """Record what is held against a kind of step; 0 and 0 remove the record."""
        if self._map is None:
            return
        place = self._kinds.get(kind)
        if place is None:
            if not self._free_kinds or not (debt or deaths):
                return
            place = self._kinds[kind] = self._free_kinds.pop()
        name = kind.encode() if debt or deaths else b""
        _KIND.pack_into(self._map, _KINDS_AT + place * _KIND.size, name, debt, deaths)
        if not name:
            self._free_kinds.append(self._kinds.pop(kind))

    def of_ended(self) -> Iterator[Left]:
        """Yield what workers that ended without draining left; their files are removed."""
        if self._folder is None:
            return
        with suppress(OSError):
            for path in islice(sorted(self._folder.glob(f"*{_SUFFIX}")), MAX_FILES):
                left = _left_in(path)
                if left is not None:
                    yield left

    def _drop(self, path: Path) -> None:
        if self._file >= 0:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def _left_in(path: Path) -> Left | None:
    """Read and remove a file; return None if its worker is alive, or the file is not one of ours."""
    try:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(path, flags)
    except OSError as error:
        log.warning("held_steps_not_read", path=str(path), reason=str(error))
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size != _SIZE:
            return None
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(file).st_nlink:  # another worker has read it meanwhile
            return None
        content = os.pread(file, _SIZE, 0)
        path.unlink()
    except BlockingIOError:
        return None
    except OSError as error:
        log.warning("held_steps_not_read", path=str(path), reason=str(error))
        return None
    finally:
        os.close(file)
    return _read(content) if content.startswith(_MAGIC) else None


def _read(content: bytes) -> Left:
    steps = []
    for how, size, kind, subject in _STEP.iter_unpack(content[_HEAD_BYTES:_KINDS_AT]):
        if WAITS <= how <= ALONE and size <= len(subject):
            with suppress(UnicodeDecodeError):
                steps.append(Held(how, _text(kind), subject[:size].decode("ascii")))
    kinds = {}
    for name, debt, deaths in _KIND.iter_unpack(content[_KINDS_AT:]):
        if name[0]:
            with suppress(UnicodeDecodeError):
                kinds[_text(name)] = (min(debt, MAX_DEBT), min(deaths, MAX_DEBT))
    return Left(steps, kinds)


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("ascii")
