"""Blobs: large values by the hash of their bytes. What is put twice is kept once.

`FileBlobs` serves one machine, `PostgresBlobs` many; both pass the same contract suite.
"""

import asyncio
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import asyncpg

from hocket.schemas.errors import HocketError

MAX_BLOB_BYTES = 64 * 1024 * 1024


class BlobUnknown(HocketError):
    """There is no blob {hash}. It may have been removed; run the step that made it again."""

    code = "blob_unknown"


class BlobTooLarge(HocketError):
    """The blob has {size_bytes} bytes; the limit is {limit_bytes}. Split it."""

    code = "blob_too_large"


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A blob's name: the SHA-256 of its bytes in hex, and their number."""

    hash: str
    size: int


class BlobStore(Protocol):
    """Keeps bytes under their hash."""

    async def put(self, data: bytes) -> BlobRef:
        """Keep bytes and return their name, or raise BlobTooLarge."""
        ...

    async def get(self, hash: str) -> bytes:  # noqa: A002 (the word of the contract)
        """Return the bytes of a blob, or raise BlobUnknown."""
        ...


def ref_of(data: bytes) -> BlobRef:
    """Return the name of bytes."""
    if len(data) > MAX_BLOB_BYTES:
        raise BlobTooLarge(size_bytes=len(data), limit_bytes=MAX_BLOB_BYTES)
    return BlobRef(hashlib.sha256(data).hexdigest(), len(data))


class FileBlobs:
    """Blobs as files: `<folder>/ab/abcdef...`, written aside, synced, then renamed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, data: bytes) -> BlobRef:
        ref = ref_of(data)
        await asyncio.to_thread(self._write, ref, data)
        return ref

    async def get(self, hash: str) -> bytes:  # noqa: A002
        try:
            return await asyncio.to_thread(self._path(hash).read_bytes)
        except FileNotFoundError:
            raise BlobUnknown(hash=hash) from None

    def _path(self, name: str) -> Path:
        if len(name) != 64 or not all(c in "0123456789abcdef" for c in name):
            raise BlobUnknown(hash=name[:80])
        return self._folder / name[:2] / name

    def _write(self, ref: BlobRef, data: bytes) -> None:
        path = self._path(ref.hash)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)


class PostgresBlobs:
    """Blobs as rows of `hocket.blob`."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def put(self, data: bytes) -> BlobRef:
        ref = ref_of(data)
        await self._pool.execute(_PUT, ref.hash, data)
        return ref

    async def get(self, hash: str) -> bytes:  # noqa: A002
        data: bytes | None = await self._pool.fetchval(_GET, hash)
        if data is None:
            raise BlobUnknown(hash=hash[:80])
        return data


_PUT = "INSERT INTO hocket.blob (hash, data) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING"
_GET = "SELECT data FROM hocket.blob WHERE hash = $1"
