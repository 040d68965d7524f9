"""Dead letters as the API shows them."""

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.schemas.rest import DeadLetter, DeadLetterList
from hocket.schemas.subjects import UNATTRIBUTED

PAYLOAD_SHOWN_BYTES = 500
"""How much of each payload a list shows."""


async def list_latest(
    bus: Bus, tenant: str, limit: int, source: str | None = None, before: int | None = None
) -> DeadLetterList:
    """Return a page of a tenant's dead letters, optionally of one source, the latest first, each with
    the beginning of its payload."""
    letters = await dead_letters.list_(
        bus,
        limit,
        source=source,
        tenant=tenant,
        before=before,
        payload_bytes=PAYLOAD_SHOWN_BYTES,
    )
    oldest = letters[-1].seq if len(letters) == limit else None
    more = oldest and await dead_letters.list_(
        bus, 1, source=source, tenant=tenant, before=oldest, payload_bytes=0
    )
    return DeadLetterList(
        dead_letters=tuple(_shown(letter, PAYLOAD_SHOWN_BYTES) for letter in letters),
        next=str(oldest) if more else None,
    )


async def show(bus: Bus, tenant: str, seq: int) -> DeadLetter:
    """Return a complete dead letter of a tenant, or raise DeadLetterUnknown."""
    letter = await dead_letters.show(bus, seq, tenant=tenant)
    return _shown(letter, len(letter.payload))


def _shown(letter: dead_letters.DeadLetter, payload_bytes: int) -> DeadLetter:
    return DeadLetter(
        seq=letter.seq,
        source=letter.source,
        tenant=None if letter.tenant == UNATTRIBUTED else letter.tenant,
        subject=letter.subject,
        error=letter.error,
        context=dict(letter.context),
        buried_at=letter.buried_at or None,
        payload=letter.payload[:payload_bytes].decode("utf-8", "replace"),
        payload_bytes=letter.payload_bytes,
        payload_truncated=letter.payload_bytes > payload_bytes,
        headers=letter.headers,
    )
