"""The usage journal: records that NATS has not flushed yet, in memory that outlives this process.

A file of fixed size in the data folder, mapped into memory and locked: what is written there is the
kernel's at once, without a system call and without a disk, and survives `kill -9` of every process. It
does not survive the loss of the machine's power. A record stays unsettled until its storing is
acknowledged; what a dead gateway left unsettled is stored by the next one (`journal_recovery.py`).

Two segments take turns. An entry is a head (length, checksum, state) and the record; a length of 0 ends
a segment. The head is written last, so that a record is there whole or not at all. A segment is begun
anew when all of its entries are settled; while neither has room, `keep` says no, and the answer of the
call waits for the disk instead.
"""

import errno
import fcntl
import itertools
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

SEGMENT_BYTES = 1024 * 1024
"""Room of one segment: about a thousand records, a second of a busy gateway."""
SUFFIX = ".records"
ASIDE = ".unreadable"
"""Is added to the name of a journal that is damaged, or that another version wrote."""
_MAGIC = b"hocket usage 1\n\0"
_FILE_BYTES = len(_MAGIC) + 2 * SEGMENT_BYTES
_HEAD = struct.Struct("<IIB")
_END = _HEAD.pack(0, 0, 0)
_STATE_AT = _HEAD.size - 1
_SETTLED, _UNSETTLED = 0, 1
_BEGINS = (len(_MAGIC), len(_MAGIC) + SEGMENT_BYTES)
_numbers = itertools.count()


class UsageJournal:
    """Keeps records of one gateway; made by `create`."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path
        self._memory = mmap.mmap(file, _FILE_BYTES)
        self._segment = 0
        self._at = _BEGINS[0]
        self._unsettled = [0, 0]

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make a journal in a folder; raises OSError where there is no room for it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{os.urandom(4).hex()}-{next(_numbers)}{SUFFIX}"
        unnamed = path.with_suffix(".new")  # until it is locked: else another might recover it
        file = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.posix_fallocate(file, 0, _FILE_BYTES)  # a full disk is found out here, not later
            os.pwrite(file, bytes(2 * SEGMENT_BYTES), len(_MAGIC))
            os.pwrite(file, _MAGIC, 0)
            unnamed.rename(path)
            return cls(file, path)
        except BaseException:
            os.close(file)
            unnamed.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise

    @property
    def unsettled(self) -> int:
        """Records that are kept here."""
        return sum(self._unsettled)

    def keep(self, record: bytes) -> int | None:
        """Keep a record and return its place, None where there is no room."""
        size = _HEAD.size + len(record)
        if not self._fits(size) and not self._turned(size):
            return None
        at, after = self._at, self._at + size
        memory = self._memory
        memory[at + _HEAD.size : after + _HEAD.size] = record + _END
        _HEAD.pack_into(memory, at, len(record), zlib.crc32(record), _UNSETTLED)
        self._at = after
        self._unsettled[self._segment] += 1
        return at

    def settle(self, at: int) -> None:
        """Say that the record at a place is stored."""
        self._memory[at + _STATE_AT] = _SETTLED
        segment = int(at >= _BEGINS[1])
        self._unsettled[segment] -= 1
        if segment == self._segment and not self._unsettled[segment]:
            self._at = _BEGINS[segment]

    def close(self) -> None:
        """Let go of the journal; it stays for others to recover where something is unsettled."""
        self._memory.close()
        if not self.unsettled:
            self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _fits(self, size: int) -> bool:
        return self._at + size + _HEAD.size <= _BEGINS[self._segment] + SEGMENT_BYTES

    def _turned(self, size: int) -> bool:
        """Go on in the other segment, if it is settled and a record fits."""
        other = 1 - self._segment
        if self._unsettled[other] or size + _HEAD.size > SEGMENT_BYTES:
            return False
        self._segment, self._at = other, _BEGINS[other]
        return True


class LeftJournal:
    """A journal whose gateway is dead, held so that nobody else recovers it too."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Take a journal; None where its gateway, or who salvages it, lives. Raises OSError where the
        path is no file of ours."""
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "Not a regular file", str(path))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except OSError:
            os.close(file)
            raise
        return cls(file, path)

    def unsettled(self) -> tuple[Sequence[bytes], bool]:
        """Return its records that may not be stored, and whether that is surely all of them: not where
        it is damaged, or of another version."""
        content = os.pread(self._file, _FILE_BYTES, 0)
        if not content.strip(b"\0"):
            return (), True
        if not content.startswith(_MAGIC):
            return (), False
        whole = len(content) == _FILE_BYTES
        records: list[bytes] = []
        for begin in _BEGINS:
            found, all_of_it = _unsettled_of(content, begin)
            records += found
            whole = whole and all_of_it
        return records, whole

    def keep_aside(self) -> Path:
        """Rename the journal so that it is looked at no more, and nothing in it is lost."""
        aside = self._path.with_name(self._path.name + ASIDE)
        self._path.rename(aside)
        return aside

    def remove(self) -> None:
        """Delete the journal, whose records are stored."""
        self._path.unlink(missing_ok=True)

    def let_go(self) -> None:
        """Leave what is left of it to whoever comes next."""
        with suppress(OSError):
            os.close(self._file)


def _unsettled_of(content: bytes, at: int) -> tuple[list[bytes], bool]:
    """Return the unsettled records of the segment that begins at a place, and whether each entry of it
    could be read. One that cannot is passed over as far as its length says."""
    records: list[bytes] = []
    whole = True
    end = min(at + SEGMENT_BYTES, len(content))
    while at + _HEAD.size <= end:
        length, checksum, state = _HEAD.unpack_from(content, at)
        if not length:
            break
        if at + _HEAD.size + length > end:
            return records, False
        record = content[at + _HEAD.size : at + _HEAD.size + length]
        if zlib.crc32(record) != checksum:
            whole = False
        elif state != _SETTLED:
            records.append(record)
        at += _HEAD.size + length
    return records, whole
