"""Capabilities prove that a message belongs to something that this platform started.

A capability is a keyed hash (BLAKE2b, 128 bits) of what it is for. The process that dispatches a step
makes one; the worker that gets the step returns it with the result and with its model calls, without
knowing the key. A seal is the capability of a whole message, between processes that have the key. The
key comes from `HOCKET_CAPABILITY_KEY` or from Postgres (`kit/process/capability_key.py`). If there are
several keys, the first one signs and all are accepted, so that a key can be changed while steps are in
flight. Pure.
"""

from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b, sha256
from hmac import compare_digest

DIGEST_BYTES = 16
MIN_KEY_CHARS = 32
MAX_KEYS = 4
SEAL = "Hocket-Seal"
"""The header of a sealed message."""


_USAGE = b"hocket usage"


class Capabilities:
    """Makes and verifies capabilities. `keys` are 1 to MAX_KEYS secrets of at least MIN_KEY_CHARS
    bytes."""

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
        """Return the proof that a run is below a root run with this budget."""
        return self._made(0, _root_budget(tenant, run_id, root_run_id, budget_usd))

    def is_of_root_budget(
        self, seal: str, tenant: str, run_id: str, root_run_id: str, budget_usd: Decimal
    ) -> bool:
        """Tell whether a seal is that proof."""
        return self._holds(seal, _root_budget(tenant, run_id, root_run_id, budget_usd))

    def seal(self, subject: str, body: bytes) -> str:
        """Return the seal of a message."""
        return self._made(0, b"message\x1f%b\x1f%b" % (subject.encode(), body))

    def is_sealed(self, seal: str, subject: str, body: bytes) -> bool:
        """Tell whether a seal is that of this message."""
        return self._holds(seal, b"message\x1f%b\x1f%b" % (subject.encode(), body))

    def id_of(self, base: str) -> str:
        """Return a message id that nobody can predict: a stream drops messages whose id it already
        knows, so a predictable id could be used up in advance."""
        return f"{base}:{self._made(0, b'id' + base.encode())[:16]}"

    def derived(self, purpose: str) -> list[bytes]:
        """Return keys of 32 bytes, derived from the keys in their order, for one purpose only."""
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


def hashed(capability: str | None) -> str | None:
    """Return what shows that its sender knows a capability, without giving it away; None for none."""
    return None if capability is None else sha256(capability.encode("utf-8", "replace")).hexdigest()


def keys_of(setting: str) -> list[bytes]:
    """Return the comma-separated keys of a setting; raise ValueError if one is too short, or there are
    too many."""
    keys = [part.strip().encode() for part in setting.split(",") if part.strip()]
    if not 0 < len(keys) <= MAX_KEYS:
        raise ValueError(f"set 1 to {MAX_KEYS} keys, separated by commas")
    if any(len(key) < MIN_KEY_CHARS for key in keys):
        raise ValueError(
            f"each key needs at least {MIN_KEY_CHARS} characters: `openssl rand -hex 32`"
        )
    return keys


def usage_key_of(setting: str) -> str:
    """Return the key setting for usage records, derived from the setting of the capability keys. It can
    seal records, but cannot make capabilities. Raises ValueError as `keys_of` does."""
    made = (blake2b(_USAGE, key=blake2b(key).digest(), digest_size=32) for key in keys_of(setting))
    return ",".join(one.hexdigest() for one in made)


def sealed(seals: Capabilities | None, subject: str, body: bytes) -> dict[str, str] | None:
    """Return the headers of a message with its seal, or None if messages are not sealed."""
    return None if seals is None else {SEAL: seals.seal(subject, body)}


def answer_to(subject: str, asked: bytes) -> str:
    """Return the name under which the answer to a request is sealed, so that it answers no other one."""
    return f"{subject}\x1f{asked.decode('utf-8', 'replace')}"


def id_of(seals: Capabilities | None, base: str) -> str:
    """Return `Capabilities.id_of`, or the base itself if there is no key."""
    return base if seals is None else seals.id_of(base)


def _attempt(
    tenant: str, run_id: str, step: str, attempt: int, dispatched_at_ms: float | None
) -> bytes:
    at_us = "" if dispatched_at_ms is None else round(dispatched_at_ms * 1_000)
    return f"attempt\x1f{tenant}\x1f{run_id}\x1f{step}\x1f{attempt}\x1f{at_us}".encode()


def _root_budget(tenant: str, run_id: str, root_run_id: str, budget_usd: Decimal) -> bytes:
    return f"root budget\x1f{tenant}\x1f{run_id}\x1f{root_run_id}\x1f{budget_usd:f}".encode()
