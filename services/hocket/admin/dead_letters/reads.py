"""Dead letters as the API shows them."""

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.schemas.rest import DeadLetter
from hocket.schemas.subjects import UNATTRIBUTED

PAYLOAD_SHOWN_BYTES = 500
"""How much of each payload a list shows."""


async def list_latest(
    bus: Bus, tenant: str, limit: int, source: str | None
) -> tuple[DeadLetter, ...]:
    """Return a tenant's latest dead letters, optionally of one source, each with the beginning of its
    payload."""
    letters = await dead_letters.list_(
        bus, limit, source=source, tenant=tenant, payload_bytes=PAYLOAD_SHOWN_BYTES
    )
    return tuple(_shown(letter, PAYLOAD_SHOWN_BYTES) for letter in letters)


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
