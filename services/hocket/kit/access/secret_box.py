"""Encryption of secrets that must be read again, such as those that sign webhooks, for Postgres.

AES-256-GCM, with a random nonce and the owner of the secret as associated data, so that a secret moved
to another row cannot be decrypted. The first of several keys encrypts, and all are tried for decryption,
so that the platform's key can be changed while secrets are still encrypted with the former one.
"""

import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hocket.schemas.errors import ErrorClass, HocketError

NONCE_BYTES = 12
KEY_BYTES = 32


class SecretUnreadable(HocketError):
    """The secret of {owner} cannot be decrypted: it was encrypted with another key of the platform.
    Add the previous key to HOCKET_CAPABILITY_KEY after the current one, or create another secret."""

    code = "secret_unreadable"
    error_class = ErrorClass.PERMANENT


class SecretBox:
    """Encrypts and decrypts secrets with keys of KEY_BYTES bytes."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        assert keys, "there is a key"
        self._ciphers = [AESGCM(key) for key in keys]

    def seal(self, secret: bytes, owner: str) -> bytes:
        """Return an encrypted secret that belongs to `owner`: the nonce, then the ciphertext."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, secret, owner.encode())

    def open(self, sealed: bytes, owner: str) -> bytes:
        """Decrypt what was sealed for `owner`, or raise SecretUnreadable."""
        nonce, text = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, text, owner.encode())
            except (InvalidTag, ValueError):
                continue
        raise SecretUnreadable(owner=owner)
