"""Blobs: large values, named by the hash of their bytes.

What a tenant puts twice is stored once; `blob_limits.py` limits how much a store may hold. A blob
belongs to the tenant that put it: another tenant that knows or guesses its hash cannot read it. Blobs
that were stored before they belonged to tenants can be read only for LEGACY_TENANT.

`FileBlobs` serves one machine, `PostgresBlobs` many; both pass the same contract suite.
"""

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError
from hocket.schemas.subjects import check_token

if TYPE_CHECKING:
    import asyncpg

USED_EVERY_S = 86_400.0
"""Minimum time between two records of a blob's last use."""
MAX_BLOB_BYTES = 64 * 1024 * 1024


LEGACY_TENANT = "default"
_TENANT = "tenant-"


class BlobUnknown(HocketError):
    """There is no blob {hash}. It may have been removed; run the step that made it again."""

    code = "blob_unknown"


class BlobTooLarge(HocketError):
    """The blob has {size_bytes} bytes; the limit is {limit_bytes}. Split it."""

    code = "blob_too_large"


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A blob's name: the SHA-256 of its bytes in hex, and its size in bytes."""

    hash: str
    size: int


class BlobStore(Protocol):
    """Stores a tenant's bytes under their hash."""

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        """Store bytes for a tenant and return their name, or raise BlobTooLarge."""
        ...

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002 (the word of the contract)
        """Return the bytes of a tenant's blob, or raise BlobUnknown."""
        ...


def ref_of(data: bytes) -> BlobRef:
    """Return the name of a blob with these bytes, or raise BlobTooLarge."""
    if len(data) > MAX_BLOB_BYTES:
        raise BlobTooLarge(size_bytes=len(data), limit_bytes=MAX_BLOB_BYTES)
    return BlobRef(hashlib.sha256(data).hexdigest(), len(data))


class FileBlobs:
    """Blobs as files: `<folder>/tenant-<tenant>/ab/abcdef...`, written to a temporary file, synced, then
    renamed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        ref = ref_of(data)
        await asyncio.to_thread(_write, self._path(tenant, ref.hash), data)
        return ref

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002
        return await asyncio.to_thread(self._read, tenant, hash)

    async def sizes(self) -> dict[str, int]:
        """Return how many bytes each tenant has."""
        return await asyncio.to_thread(self._sizes)

    async def room(self) -> int | None:
        """Return how many bytes the disk has left."""
        folder = next(path for path in (self._folder, *self._folder.parents) if path.exists())
        return (await asyncio.to_thread(shutil.disk_usage, folder)).free

    async def remove_unused(self, days: int) -> int:
        """Remove blobs that nobody has stored or read for `days`, by the clock of the disk; return how
        many were removed."""
        return await asyncio.to_thread(self._remove_unused, days * 86_400)

    def _remove_unused(self, age_s: float) -> int:
        if not self._folder.is_dir():
            return 0
        before, removed = _disk_time(self._folder) - age_s, 0
        for path in self._folder.rglob("*"):
            with suppress(FileNotFoundError):  # another worker may be removing blobs, too
                if path.is_file() and path.stat().st_mtime <= before:
                    path.unlink()
                    removed += 1
        return removed

    def _sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for path in self._folder.rglob("*"):
            with suppress(OSError):  # another worker may be removing blobs
                if path.is_file():
                    top = path.relative_to(self._folder).parts[0]
                    tenant = top.removeprefix(_TENANT) if top.startswith(_TENANT) else LEGACY_TENANT
                    sizes[tenant] = sizes.get(tenant, 0) + path.stat().st_size
        return sizes

    def _read(self, tenant: str, name: str) -> bytes:
        paths = [self._path(tenant, name)]
        if tenant == LEGACY_TENANT:
            paths.append(self._folder / name[:2] / name)
        for path in paths:
            with suppress(FileNotFoundError):
                data = path.read_bytes()
                _used(path)
                return data
        raise BlobUnknown(hash=name)

    def _path(self, tenant: str, name: str) -> Path:
        if len(name) != 64 or not all(c in "0123456789abcdef" for c in name):
            raise BlobUnknown(hash=shown_text(name))
        # a tenant's name of two hex digits must not be mistaken for a folder of older blobs
        return self._folder / f"{_TENANT}{check_token('tenant', tenant)}" / name[:2] / name


def _write(path: Path, data: bytes) -> None:
    with suppress(FileNotFoundError):
        return _used(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:  # a full disk must not keep half of a blob
        Path(temporary).unlink(missing_ok=True)
        raise


def _disk_time(folder: Path) -> float:
    """Return the time that a file made now gets, in seconds of Unix time. On a disk that machines share,
    it is that of its server, so that one machine's wrong clock does not count. If no file can be made,
    because the disk is full, return the time of this machine."""
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime
    return time.time()


def _used(path: Path) -> None:
    """Record that a blob was stored again or read, so that it is kept longer."""
    if abs(path.stat().st_mtime - time.time()) > USED_EVERY_S:
        os.utime(path)


class PostgresBlobs:
    """Blobs as rows of `hocket.tenant_blob`."""

    def __init__(self, pool: "asyncpg.Pool") -> None:
        self._pool = pool

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        ref = ref_of(data)
        await self._pool.execute(_PUT, tenant, ref.hash, data)
        return ref

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002
        data: bytes | None = await self._pool.fetchval(_GET, tenant, hash, LEGACY_TENANT)
        if data is None:
            raise BlobUnknown(hash=shown_text(hash))
        await self._pool.execute(_USED, tenant, hash)
        return data

    async def sizes(self) -> dict[str, int]:
        """Return how many bytes each tenant has."""
        rows = await self._pool.fetch(_SIZES, LEGACY_TENANT)
        return {row["tenant"]: row["bytes"] for row in rows}

    async def room(self) -> int | None:
        """Return None: how much room the server's disk has is not known."""
        return None


_PUT = """
INSERT INTO hocket.tenant_blob (tenant, hash, data) VALUES ($1, $2, $3)
ON CONFLICT (tenant, hash) DO UPDATE SET created_at = now()
    WHERE tenant_blob.created_at < now() - interval '1 day'
"""
_USED = """
UPDATE hocket.tenant_blob SET created_at = now()
WHERE tenant = $1 AND hash = $2 AND created_at < now() - interval '1 day'
"""
_GET = """
SELECT data FROM hocket.tenant_blob WHERE tenant = $1 AND hash = $2
UNION ALL
SELECT data FROM hocket.blob WHERE hash = $2 AND $1 = $3
LIMIT 1
"""
_SIZES = """
SELECT tenant, sum(bytes)::bigint AS bytes FROM (
    SELECT tenant, octet_length(data)::bigint AS bytes FROM hocket.tenant_blob
    UNION ALL
    SELECT $1, octet_length(data) FROM hocket.blob
) AS held
GROUP BY tenant
"""
