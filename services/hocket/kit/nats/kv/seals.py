"""Seals of a bucket's entries: which of them are from somebody who may write them.

A value is sealed with the revision that it is written over, so that nobody can write an old one again.
"""

from hocket.schemas.capabilities import Capabilities

MAX_DIGITS = 19
"""Of a revision."""


class EntrySeals:
    """The seals of one bucket, whose subjects begin with `prefix`; without `capabilities` every entry is
    accepted."""

    def __init__(self, prefix: str, capabilities: Capabilities | None) -> None:
        self._prefix = prefix
        self._capabilities = capabilities
        self._accepted: dict[str, int] = {}
        """By key: the revision of the newest entry that was ours; an older one is not ours again."""

    def seal(self, key: str, value: bytes | None, after: int) -> str | None:
        """Return the seal of a value that is written over a revision; None where none is asked for."""
        if self._capabilities is None:
            return None
        sealed = self._capabilities.seal(f"{self._prefix}{key}\x1f{after}", value or b"")
        return f"{after}.{sealed}"

    def is_ours(self, key: str, value: bytes | None, revision: int, seal: str) -> bool:
        """Tell whether a value is from somebody who may write it, and written over what was there last:
        not one of before that somebody writes again."""
        if self._capabilities is None:
            return True
        number, _, sealed = seal.partition(".")
        if not number.isdecimal() or len(number) > MAX_DIGITS:
            return False
        after = int(number)
        if not self._accepted.get(key, 0) <= after < revision:
            return False
        subject = f"{self._prefix}{key}\x1f{after}"
        return self._capabilities.is_sealed(sealed, subject, value or b"")

    def accept(self, key: str, revision: int) -> None:
        """Note the newest revision of a key that was ours."""
        self._accepted[key] = revision

    def forget(self) -> None:
        """Forget the revisions: they may begin anew."""
        self._accepted.clear()
