"""Seals of a bucket's entries, which show that an entry was written by somebody who may write it.

A value is sealed together with the revision that it replaces, so that nobody can replay an old value
while its key exists.
"""

from hocket.schemas.capabilities import Capabilities

MAX_DIGITS = 19
"""Digits that a revision may have."""


class EntrySeals:
    """The seals of one bucket, whose subjects begin with `prefix`; without `capabilities`, every entry
    is accepted."""

    def __init__(self, prefix: str, capabilities: Capabilities | None) -> None:
        self._prefix = prefix
        self._capabilities = capabilities
        self._accepted: dict[str, int] = {}
        """By key, the revision of the newest entry that was ours; older ones are not accepted again."""
        self._written: dict[str, int] = {}
        """By key, the revision that this process wrote last, until it is accepted."""

    def seal(self, key: str, value: bytes | None, after: int) -> str | None:
        """Return the seal of a value that replaces the revision `after`, or the newer one that this
        process wrote; None without `capabilities`."""
        if self._capabilities is None:
            return None
        after = max(after, self._written.get(key, 0))
        sealed = self._capabilities.seal(f"{self._prefix}{key}\x1f{after}", value or b"")
        return f"{after}.{sealed}"

    def is_ours(self, key: str, value: bytes | None, revision: int, seal: str) -> bool:
        """Tell whether a value was written by somebody who may write it, over the latest entry that was
        ours: a replayed old value is not accepted."""
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

    def wrote(self, key: str, revision: int) -> None:
        """Note a key's revision as one that this process wrote: it may write again before it hears of
        it."""
        if self._capabilities is not None and revision > self._accepted.get(key, 0):
            self._written[key] = revision

    def accept(self, key: str, revision: int) -> None:
        """Note a key's revision as its newest that was ours."""
        self._accepted[key] = revision
        if self._written.get(key, 0) <= revision:
            self._written.pop(key, None)

    def forget_key(self, key: str) -> None:
        """Forget the revision of a key that was deleted: its next value may replace nothing."""
        self._accepted.pop(key, None)
        self._written.pop(key, None)

    def forget(self) -> None:
        """Forget the revisions: they may start again at 1."""
        self._accepted.clear()
        self._written.clear()
