"""The blob store of a worker process, for values that are too large for messages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import structlog

from hocket.kit.blob_limits import MIB, LimitedBlobs
from hocket.kit.blobs import BlobRef, BlobStore, FileBlobs, PostgresBlobs
from hocket.kit.postgres.errors import AWAY
from hocket.kit.process.lifecycle import Service
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.workers.configuration import Blobs

BLOB_POOL_SIZE = 4
BLOBS_EVERY_S = 3_600.0
PATIENCE_S = 60.0
"""How long a value waits while Postgres is unavailable."""
TRY_S, PAUSE_S = 30.0, 0.5

T = TypeVar("T")
log = structlog.get_logger(__name__)


class BlobsUnavailable(HocketError):
    """The store of large values cannot be used now: {reason}. Check that Postgres runs."""

    code = "blobs_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class PatientBlobs:
    """A store in Postgres that waits for PATIENCE_S while Postgres is unavailable, because the output of
    a step would otherwise be lost."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        """Store bytes, or raise BlobTooLarge, BlobsFull or BlobsUnavailable."""
        return await _patiently(partial(self._store.put, tenant, data))

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002 (the word of the contract)
        """Return the bytes of a blob, or raise BlobUnknown or BlobsUnavailable."""
        return await _patiently(partial(self._store.get, tenant, hash))


@asynccontextmanager
async def opened_blobs(
    service: Service, settings: Blobs, keep_days: int
) -> AsyncIterator[BlobStore | None]:
    """Yield the configured store with its limit, or None if there is none. Meanwhile blobs in files that
    nobody has used for `keep_days` are removed."""
    blobs = await _store(service, settings)
    removing = asyncio.create_task(_remove_unused(blobs, keep_days))
    try:
        limited = None if blobs is None else LimitedBlobs(blobs, max_bytes=settings.max_mib * MIB)
        yield PatientBlobs(limited) if limited and settings.store == "postgres" else limited
    finally:
        removing.cancel()


async def _store(service: Service, settings: Blobs) -> FileBlobs | PostgresBlobs | None:
    if settings.store == "none":
        return None
    if settings.store == "postgres":
        return PostgresBlobs(await service.pool(BLOB_POOL_SIZE))
    return FileBlobs(settings.folder or service.settings.data_dir / "blobs")


async def _remove_unused(blobs: BlobStore | None, days: int) -> None:
    """Remove blobs in files that nobody has used for `days`; the ledger removes those in Postgres."""
    while days and isinstance(blobs, FileBlobs):
        try:
            removed = await blobs.remove_unused(days)
        except OSError as error:
            log.warning("blobs_not_removed", reason=str(error))
        else:
            if removed:
                log.info("blobs_removed", blobs=removed, unused_days=days)
        await asyncio.sleep(BLOBS_EVERY_S)


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Return what a request returns, repeating it while Postgres is unavailable."""
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + PATIENCE_S
    while True:
        try:
            async with asyncio.timeout(TRY_S):
                return await ask()
        except AWAY as error:
            if now_s() + PAUSE_S > until_s:
                reason = str(error) or type(error).__name__
                raise BlobsUnavailable(reason=reason) from error
        await asyncio.sleep(PAUSE_S)
