"""The blob store of a worker process, for values that are too large for messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from hocket.kit.blob_limits import MIB, LimitedBlobs
from hocket.kit.blobs import BlobStore, FileBlobs, PostgresBlobs
from hocket.kit.process.lifecycle import Service
from hocket.workers.configuration import Blobs

BLOB_POOL_SIZE = 4
BLOBS_EVERY_S = 3_600.0

log = structlog.get_logger(__name__)


@asynccontextmanager
async def opened_blobs(
    service: Service, settings: Blobs, keep_days: int
) -> AsyncIterator[BlobStore | None]:
    """Yield the configured store with its limit, or None if there is none. Meanwhile blobs in files that
    nobody has used for `keep_days` are removed."""
    blobs = await _store(service, settings)
    removing = asyncio.create_task(_remove_unused(blobs, keep_days))
    try:
        yield None if blobs is None else LimitedBlobs(blobs, max_bytes=settings.max_mib * MIB)
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
