"""How workers wait for their store of large values while Postgres is unavailable."""

import asyncpg
import pytest

from hocket.kit.blob_limits import BlobsFull
from hocket.kit.blobs import BlobRef, BlobStore, ref_of
from hocket.workers import blob_stores
from hocket.workers.blob_stores import BlobsUnavailable, PatientBlobs
from hocket.workers.runtime.values.large_values import LargeValues
from hocket.workers.runtime.values.references import reference


class Away(BlobStore):
    """Stands for a store whose server is away for some requests; then it has `data`."""

    def __init__(self, *errors: Exception, data: bytes = b"kept") -> None:
        self._errors = list(errors)
        self._data = data

    async def put(self, tenant: str, data: bytes) -> BlobRef:
        await self.get(tenant, "")
        return ref_of(data)

    async def get(self, tenant: str, hash: str) -> bytes:  # noqa: A002
        assert tenant == "t"
        assert not hash or hash == ref_of(self._data).hash
        if self._errors:
            raise self._errors.pop(0)
        return self._data


OUTAGE = (
    ConnectionRefusedError("no server"),
    asyncpg.ConnectionDoesNotExistError("closed in the middle"),
    asyncpg.CannotConnectNowError("starting up"),
)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_stores, "PAUSE_S", 0.0)


async def test_a_value_waits_until_postgres_is_back() -> None:
    assert await PatientBlobs(Away(*OUTAGE)).put("t", b"new") == ref_of(b"new")
    assert await PatientBlobs(Away(*OUTAGE)).get("t", ref_of(b"kept").hash) == b"kept"


async def test_after_that_the_step_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_stores, "PATIENCE_S", -1.0)
    with pytest.raises(BlobsUnavailable, match="no server") as raised:
        await PatientBlobs(Away(*OUTAGE)).put("t", b"new")
    assert raised.value.info().retryable
    given = reference(ref_of(b"kept").hash, 4, "text")
    with pytest.raises(BlobsUnavailable):  # the blob itself may be there
        await LargeValues(PatientBlobs(Away(*OUTAGE))).resolved("t", given)


async def test_a_refusal_is_told_at_once() -> None:
    full = BlobsFull(whose="tenant `t`", size_mib=2, limit_mib=1)
    with pytest.raises(BlobsFull):
        await PatientBlobs(Away(full)).put("t", b"new")
