"""Capabilities: what proves that a message belongs to something that this platform began.

A capability is a keyed hash (BLAKE2b, 128 bits) of what it is for. Who dispatches a step makes one;
whoever gets the step sends it back with the result and with its model calls, and need not know the key.
A seal is one of a whole message, between processes that have the key. The key itself comes from
`HOCKET_CAPABILITY_KEY` or from Postgres (`kit/process/capability_key.py`); of several the first one
signs, and all are believed, so that a key can be changed while steps are under way. Pure.
"""

from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b
from hmac import compare_digest

DIGEST_BYTES = 16
MIN_KEY_CHARS = 32
MAX_KEYS = 4
SEAL = "Hocket-Seal"
"""Header of a message that is sealed."""


_USAGE = b"hocket usage"


class Capabilities:
    """Makes and knows capabilities. `keys`: 1 to MAX_KEYS secrets of at least MIN_KEY_CHARS bytes."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        assert 0 < len(keys) <= MAX_KEYS, "the settings are checked before"
        self._keyed = [
            blake2b(key=blake2b(key).digest(), digest_size=DIGEST_BYTES, usedforsecurity=True)
            for key in keys
        ]

    def of_attempt(
        self, tenant: str, run_id: str, step: str, attempt: int, dispatched_at_ms: float | None
    ) -> str:
        """Return the capability of one dispatch of an attempt."""
        return self._made(0, _attempt(tenant, run_id, step, attempt, dispatched_at_ms))

    def is_of_attempt(
        self,
        capability: str,
        tenant: str,
        run_id: str,
        step: str,
        attempt: int,
        dispatched_at_ms: float | None,
    ) -> bool:
        """Tell whether a capability is that of this dispatch."""
        return self._holds(capability, _attempt(tenant, run_id, step, attempt, dispatched_at_ms))

    def of_root_budget(
        self, tenant: str, run_id: str, root_run_id: str, budget_usd: Decimal
    ) -> str:
        """Return the proof that a run stands below another one, which has this budget."""
        return self._made(0, _root_budget(tenant, run_id, root_run_id, budget_usd))

    def is_of_root_budget(
        self, seal: str, tenant: str, run_id: str, root_run_id: str, budget_usd: Decimal
    ) -> bool:
        """Tell whether that is the proof of it."""
        return self._holds(seal, _root_budget(tenant, run_id, root_run_id, budget_usd))

    def seal(self, subject: str, body: bytes) -> str:
        """Return the seal of a message."""
        return self._made(0, b"message\x1f%b\x1f%b" % (subject.encode(), body))

    def is_sealed(self, seal: str, subject: str, body: bytes) -> bool:
        """Tell whether a seal is that of this message."""
        return self._holds(seal, b"message\x1f%b\x1f%b" % (subject.encode(), body))

    def id_of(self, base: str) -> str:
        """Return a message's id that nobody can know before it is used: streams drop what comes under an
        id that they know already."""
        return f"{base}:{self._made(0, b'id' + base.encode())[:16]}"

    def derived(self, purpose: str) -> list[bytes]:
        """Return keys of 32 bytes that follow from the keys, the first one's first: for a purpose of its
        own, and nothing else."""
        parts = [b"derived\x1f%b\x1f%d" % (purpose.encode(), part) for part in (0, 1)]
        return [
            b"".join(bytes.fromhex(self._made(number, part)) for part in parts)
            for number in range(len(self._keyed))
        ]

    def _made(self, number: int, claims: bytes) -> str:
        keyed = self._keyed[number].copy()
        keyed.update(claims)
        return keyed.hexdigest()

    def _holds(self, capability: str, claims: bytes) -> bool:
        if not capability.isascii():
            return False
        return any(
            compare_digest(capability, self._made(number, claims))
            for number in range(len(self._keyed))
        )


def keys_of(setting: str) -> list[bytes]:
    """Return the keys of a setting, which are separated by commas; raise ValueError where one is too
    short, or there are too many."""
    keys = [part.strip().encode() for part in setting.split(",") if part.strip()]
    if not 0 < len(keys) <= MAX_KEYS:
        raise ValueError(f"give 1 to {MAX_KEYS} keys, separated by commas")
    if any(len(key) < MIN_KEY_CHARS for key in keys):
        raise ValueError(
            f"each key needs at least {MIN_KEY_CHARS} characters: `openssl rand -hex 32`"
        )
    return keys


def usage_key_of(setting: str) -> str:
    """Return the setting of the key for usage records that follows from a setting of the capabilities'
    keys: who has it seals records, and can make no capability. Raises ValueError as `keys_of`."""
    made = (blake2b(_USAGE, key=blake2b(key).digest(), digest_size=32) for key in keys_of(setting))
    return ",".join(one.hexdigest() for one in made)


def sealed(seals: Capabilities | None, subject: str, body: bytes) -> dict[str, str] | None:
    """Return the headers of a message with its seal; None where nothing is sealed."""
    return None if seals is None else {SEAL: seals.seal(subject, body)}


def answer_to(subject: str, asked: bytes) -> str:
    """Return what the answer to a question on a subject is sealed under: it answers no other one."""
    return f"{subject}\x1f{asked.decode('utf-8', 'replace')}"


def id_of(seals: Capabilities | None, base: str) -> str:
    """Return `Capabilities.id_of`, or the base itself where there is no key."""
    return base if seals is None else seals.id_of(base)


def _attempt(
    tenant: str, run_id: str, step: str, attempt: int, dispatched_at_ms: float | None
) -> bytes:
    at_us = "" if dispatched_at_ms is None else round(dispatched_at_ms * 1_000)
    return f"attempt\x1f{tenant}\x1f{run_id}\x1f{step}\x1f{attempt}\x1f{at_us}".encode()


def _root_budget(tenant: str, run_id: str, root_run_id: str, budget_usd: Decimal) -> bytes:
    return f"root budget\x1f{tenant}\x1f{run_id}\x1f{root_run_id}\x1f{budget_usd:f}".encode()
