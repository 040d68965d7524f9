"""Limits on all blobs of a store, and on one tenant's share of them.

The content of a store is measured periodically; between measurements, each process counts only what it
puts itself. So a store may exceed its limit by what the other processes put within MEASURE_EVERY_S.
States: room, and full, when only blobs that are stored already may be put again.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from hocket.kit.blobs import BlobRef, BlobStore, BlobUnknown, ref_of
from hocket.schemas.errors import ErrorClass, HocketError

MAX_STORE_MIB = 65_536
"""Limit for all blobs of a store, unless the configuration sets another."""
TENANT_SHARE = 0.5
"""One tenant's share of the limit, or of the available room if that is less."""
MEASURE_EVERY_S = 60.0
LOOK_AGAIN_S = 5.0
"""A full store is measured again after this time, in case somebody has made room."""
MEASURING_FACTOR = 20
"""Measurements are so far apart that they take at most a twentieth of the time."""
MAX_COUNTED = 100_000
"""Blobs counted since the last measurement that are remembered, so as not to count them twice."""
MIB = 1024 * 1024


class BlobsFull(HocketError):
    """The output is too large for a message, and there is no room for it: blobs of {whose} come to
    {size_mib} MiB; the limit is {limit_mib} MiB. Return less, wait until unused blobs are removed
    (`HOCKET_KEEP_BLOBS_DAYS`), or raise `blobs.max_mib`."""

    code = "blobs_full"
    error_class = ErrorClass.PERMANENT


class MeasuredBlobs(BlobStore, Protocol):
    """A store that knows what it holds."""

    async def sizes(self) -> Mapping[str, int]:
        """Return how many bytes each tenant has."""
        ...

    async def room(self) -> int | None:
        """Return how many bytes its disk has left; None if that is not known."""
        ...


class LimitedBlobs:
    """A store that refuses blobs beyond `max_bytes` in total, or beyond a tenant's share of it."""

    def __init__(self, store: MeasuredBlobs, *, max_bytes: int = MAX_STORE_MIB * MIB) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._limit = max_bytes
        self._sizes: dict[str, int] = {}
        self._counted: set[tuple[str, str]] = set()
        self._measured_at_s = float("-inf")
        self._rest_s = 0.0
        self._measuring = asyncio.Lock()

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        """Keep bytes for a tenant, or raise BlobTooLarge or BlobsFull."""
        ref = ref_of(data)
        await self._measure(MEASURE_EVERY_S)
        if self._refusal(tenant, ref.size) is not None:
            await self._measure(LOOK_AGAIN_S)
        refusal = self._refusal(tenant, ref.size)
        if refusal is not None and not await self._has(tenant, ref):
            raise refusal
        await self._store.put(tenant, data)
        if refusal is None and self._is_new(tenant, ref):
            self._sizes[tenant] = self._sizes.get(tenant, 0) + ref.size
        return ref

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002
        """Return the bytes of a tenant's blob, or raise BlobUnknown."""
        return await self._store.get(tenant, hash)

    def _is_new(self, tenant: str, ref: BlobRef) -> bool:
        """Tell whether a blob is not counted yet, and remember it as counted: a blob that a tenant puts
        repeatedly is stored once."""
        if (tenant, ref.hash) in self._counted:
            return False
        if len(self._counted) < MAX_COUNTED:
            self._counted.add((tenant, ref.hash))
        return True

    def _refusal(self, tenant: str, size: int) -> BlobsFull | None:
        theirs, everybodys = self._sizes.get(tenant, 0) + size, sum(self._sizes.values()) + size
        share = int(TENANT_SHARE * self._limit)
        if theirs > share:
            whose, held, limit = f"tenant `{tenant}`", theirs, share
        elif everybodys > self._limit:
            whose, held, limit = "all tenants", everybodys, self._limit
        else:
            return None
        return BlobsFull(
            whose=whose, size_mib=round(held / MIB, 1), limit_mib=round(limit / MIB, 1)
        )

    async def _has(self, tenant: str, ref: BlobRef) -> bool:
        try:
            await self._store.get(tenant, ref.hash)
        except BlobUnknown:
            return False
        return True

    async def _measure(self, every_s: float) -> None:
        loop = asyncio.get_running_loop()
        async with self._measuring:
            begun_s = loop.time()
            if begun_s - self._measured_at_s < max(every_s, self._rest_s):
                return
            sizes = dict(await self._store.sizes())
            room = await self._store.room()
            self._sizes = sizes
            self._counted.clear()
            held = sum(sizes.values())
            self._limit = min(
                self._max_bytes, self._max_bytes if room is None else held + room // 2
            )
            self._measured_at_s = loop.time()
            self._rest_s = MEASURING_FACTOR * (self._measured_at_s - begun_s)
