"""Dead letters as the API shows them."""

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.schemas.rest import DeadLetter, DeadLetterList
from hocket.schemas.subjects import UNATTRIBUTED

PAYLOAD_SHOWN_BYTES = 500
"""How much of each payload a list shows."""
MAX_READ_BYTES = 4 * 1_048_576
"""The size of the payloads that are read for one page of a list, of which the beginnings are shown; a
page ends after the portion with which it is exceeded."""
LETTERS_AT_ONCE = 10
"""Letters in one portion."""


async def list_latest(
    bus: Bus, tenant: str, limit: int, source: str | None = None, before: int | None = None
) -> DeadLetterList:
    """Return a page of a tenant's dead letters, optionally of one source, the latest first, each with
    the beginning of its payload. A page ends early when MAX_READ_BYTES of payloads were read for it,
    because NATS sends each of them whole."""
    letters: list[dead_letters.DeadLetter] = []
    read_bytes, is_last = 0, False
    while len(letters) < limit and read_bytes <= MAX_READ_BYTES and not is_last:
        wanted = min(LETTERS_AT_ONCE, limit - len(letters))
        found = await dead_letters.list_(
            bus,
            wanted,
            source=source,
            tenant=tenant,
            before=letters[-1].seq if letters else before,
            payload_bytes=PAYLOAD_SHOWN_BYTES,
        )
        letters += found
        read_bytes += sum(letter.payload_bytes for letter in found)
        is_last = len(found) < wanted
    more = not is_last and await dead_letters.list_(
        bus, 1, source=source, tenant=tenant, before=letters[-1].seq, payload_bytes=0
    )
    return DeadLetterList(
        dead_letters=tuple(_shown(letter, PAYLOAD_SHOWN_BYTES) for letter in letters),
        next=str(letters[-1].seq) if more else None,
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
