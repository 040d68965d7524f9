"""Blobs: large values by the hash of their bytes. What a tenant puts twice is kept once.

A blob belongs to the tenant that put it: whoever knows or guesses the hash of another one's bytes gets
nothing for it. What was put before blobs belonged to tenants is read for LEGACY_TENANT only.

`FileBlobs` serves one machine, `PostgresBlobs` many; both pass the same contract suite.
"""

import asyncio
import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import asyncpg

from hocket.schemas.errors import HocketError
from hocket.schemas.subjects import check_token

MAX_BLOB_BYTES = 64 * 1024 * 1024


LEGACY_TENANT = "default"


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
    """Keeps a tenant's bytes under their hash."""

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        """Keep bytes for a tenant and return their name, or raise BlobTooLarge."""
        ...

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002 (the word of the contract)
        """Return the bytes of a tenant's blob, or raise BlobUnknown."""
        ...


def ref_of(data: bytes) -> BlobRef:
    """Return the name of bytes."""
    if len(data) > MAX_BLOB_BYTES:
        raise BlobTooLarge(size_bytes=len(data), limit_bytes=MAX_BLOB_BYTES)
    return BlobRef(hashlib.sha256(data).hexdigest(), len(data))


class FileBlobs:
    """Blobs as files: `<folder>/tenant-<tenant>/ab/abcdef...`, written aside, synced, then renamed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        ref = ref_of(data)
        await asyncio.to_thread(_write, self._path(tenant, ref.hash), data)
        return ref

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002
        return await asyncio.to_thread(self._read, tenant, hash)

    def _read(self, tenant: str, name: str) -> bytes:
        paths = [self._path(tenant, name)]
        if tenant == LEGACY_TENANT:
            paths.append(self._folder / name[:2] / name)
        for path in paths:
            with suppress(FileNotFoundError):
                return path.read_bytes()
        raise BlobUnknown(hash=name)

    def _path(self, tenant: str, name: str) -> Path:
        if len(name) != 64 or not all(c in "0123456789abcdef" for c in name):
            raise BlobUnknown(hash=name[:80])
        # a tenant's name of two hex digits must not be taken for a folder of older blobs
        return self._folder / f"tenant-{check_token('tenant', tenant)}" / name[:2] / name


def _write(path: Path, data: bytes) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:  # a full disk must not keep half of what it had no room for
        Path(temporary).unlink(missing_ok=True)
        raise


class PostgresBlobs:
    """Blobs as rows of `hocket.tenant_blob`."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        ref = ref_of(data)
        await self._pool.execute(_PUT, tenant, ref.hash, data)
        return ref

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002
        data: bytes | None = await self._pool.fetchval(_GET, tenant, hash, LEGACY_TENANT)
        if data is None:
            raise BlobUnknown(hash=hash[:80])
        return data


_PUT = """
INSERT INTO hocket.tenant_blob (tenant, hash, data) VALUES ($1, $2, $3)
ON CONFLICT (tenant, hash) DO NOTHING
"""
_GET = """
SELECT data FROM hocket.tenant_blob WHERE tenant = $1 AND hash = $2
UNION ALL
SELECT data FROM hocket.blob WHERE hash = $2 AND $1 = $3
LIMIT 1
"""
