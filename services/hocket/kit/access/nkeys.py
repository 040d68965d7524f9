"""NATS's keys and tokens, as far as they are needed to decide which users may connect.

A key is Ed25519, written in base32 with a byte for its kind and a CRC-16 (NATS's ADR-14); a token is
a JWT with the algorithm `ed25519-nkey` (ADR-14, ADR-26). None of our maintained dependencies writes
either.
"""

import base64
import binascii
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_ACCOUNT = 0
_SEED = 18 << 3
_SEED_CHARS = 58
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}


class AccountKey:
    """The key of an account, which signs the tokens that admit users."""

    def __init__(self, seed: str) -> None:
        """Take a seed as `new_seed` or NATS's tools make it; raise ValueError if it is invalid."""
        self._key = Ed25519PrivateKey.from_private_bytes(_read_seed(seed))
        self.public = _written(bytes([_ACCOUNT]) + self._key.public_key().public_bytes_raw())

    def token(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token with the claims; adds the issuer, the time and an id."""
        told = {**claims, "iss": self.public, "iat": int(time.time())}
        told["jti"] = hashlib.sha256(_json(told)).hexdigest()
        signed = _base64(_json(_HEADER)) + b"." + _base64(_json(told))
        return (signed + b"." + _base64(self._key.sign(signed))).decode()


def new_seed() -> str:
    """Return the seed of a new account key."""
    return _written(bytes([_SEED | _ACCOUNT >> 5, (_ACCOUNT & 31) << 3]) + secrets.token_bytes(32))


def claims_of(token: bytes) -> dict[str, Any]:
    """Return the claims of a token; raise ValueError if it is not a token. The signature is not
    verified: the token comes from a server, on a subject on which nobody else may publish."""
    parts = token.split(b".")
    if len(parts) != 3:
        raise ValueError("it does not have three parts")
    claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    if not isinstance(claims, dict):
        raise ValueError("its claims are not an object")
    return claims


def _read_seed(seed: str) -> bytes:
    try:
        raw = base64.b32decode(seed.strip() + "=" * (-len(seed.strip()) % 8))
    except binascii.Error as error:
        raise ValueError("it is not base32") from error
    if len(seed.strip()) != _SEED_CHARS or raw[:2] != bytes([_SEED, _ACCOUNT << 3]):
        raise ValueError(
            "it is not the seed of an account, which begins with SA and has 58 characters"
        )
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("its checksum is wrong")
    return raw[2:-2]


def _written(raw: bytes) -> str:
    checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(checked).rstrip(b"=").decode()


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")
