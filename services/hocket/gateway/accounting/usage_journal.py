"""The usage journal: keeps records that NATS has not flushed yet in memory that outlives this
process.

It is a file of fixed size in the data folder, mapped into memory and locked. Whatever is written to
it belongs to the kernel at once, without a system call or a disk write, and survives `kill -9` of
any process, but not a power failure of the machine. A record stays unsettled until its storing is
acknowledged; records that a dead gateway left unsettled are stored by another one
(`journal_recovery.py`).

Two segments are used alternately. An entry is a head (length, checksum, state) followed by the
record; a length of 0 ends a segment. The head is written last, so a record is there either
completely or not at all. A segment is reused when all its entries are settled; while neither has
room, `keep` returns None, and the reply of the call waits for the disk instead.
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
"""The size of one segment: about a thousand records, a second's worth for a busy gateway."""
SUFFIX = ".records"
ASIDE = ".unreadable"
"""The suffix added to the name of a journal that is damaged or was written by another version."""
_MAGIC = b"hocket usage 1\n\0"
_FILE_BYTES = len(_MAGIC) + 2 * SEGMENT_BYTES
_HEAD = struct.Struct("<IIB")
_END = _HEAD.pack(0, 0, 0)
_STATE_AT = _HEAD.size - 1
_SETTLED, _UNSETTLED = 0, 1
_BEGINS = (len(_MAGIC), len(_MAGIC) + SEGMENT_BYTES)
_numbers = itertools.count()


class UsageJournal:
    """Keeps the records of one gateway; use `create`."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path
        self._memory = mmap.mmap(file, _FILE_BYTES)
        self._segment = 0
        self._at = _BEGINS[0]
        self._unsettled = [0, 0]

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Create a journal in a folder; raise OSError if there is no room for it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{os.urandom(4).hex()}-{next(_numbers)}{SUFFIX}"
        unnamed = path.with_suffix(".new")  # until locked, so that no other process recovers it
        file = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.posix_fallocate(file, 0, _FILE_BYTES)  # fail here if the disk is full, not later
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
        """The number of unsettled records."""
        return sum(self._unsettled)

    def keep(self, record: bytes) -> int | None:
        """Keep a record and return its place; None if there is no room."""
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
        """Mark the record at a place as stored."""
        self._memory[at + _STATE_AT] = _SETTLED
        segment = int(at >= _BEGINS[1])
        self._unsettled[segment] -= 1
        if segment == self._segment and not self._unsettled[segment]:
            self._at = _BEGINS[segment]

    def close(self) -> None:
        """Release the journal; if any record is unsettled, the file stays for others to recover."""
        self._memory.close()
        if not self.unsettled:
            self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _fits(self, size: int) -> bool:
        return self._at + size + _HEAD.size <= _BEGINS[self._segment] + SEGMENT_BYTES

    def _turned(self, size: int) -> bool:
        """Switch to the other segment if it is settled and the record fits;
        return whether that was done."""
        other = 1 - self._segment
        if self._unsettled[other] or size + _HEAD.size > SEGMENT_BYTES:
            return False
        self._segment, self._at = other, _BEGINS[other]
        return True


class LeftJournal:
    """The journal of a dead gateway, locked so that no one else recovers it too."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Take a journal; None if its gateway, or another process recovering it, is alive.

        Raises OSError if the path is not a regular file of this user.
        """
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
        """Return the records that may not be stored yet, and whether these are certainly all.

        They are not if the journal is damaged or was written by another version.
        """
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
        """Rename the journal, so that it is not looked at again but nothing in it is lost."""
        aside = self._path.with_name(self._path.name + ASIDE)
        self._path.rename(aside)
        return aside

    def remove(self) -> None:
        """Delete the journal after its records have been stored."""
        self._path.unlink(missing_ok=True)

    def let_go(self) -> None:
        """Release the journal; whatever remains is left to the next one to recover it."""
        with suppress(OSError):
            os.close(self._file)


def _unsettled_of(content: bytes, at: int) -> tuple[list[bytes], bool]:
    """Return the unsettled records of the segment at an offset, and whether every entry could be
    read.

    An entry with a wrong checksum is skipped by its length.
    """
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
