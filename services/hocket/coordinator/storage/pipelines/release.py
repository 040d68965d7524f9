"""Which version of a pipeline a run takes if it names none."""

import hashlib
from dataclasses import dataclass

_POINTS = 2**64


@dataclass(frozen=True, slots=True)
class Release:
    """What is chosen for a pipeline: its `active` version, or the `newest` if none is; if there is
    a `canary`, the share `canary_share` of its runs takes that version."""

    newest: int
    active: int | None = None
    canary: int | None = None
    canary_share: float = 0.0
    is_archived: bool = False

    def version_for(self, run_id: str) -> int:
        """Return the version of a run: always the same one for the same id."""
        if self.canary is not None and _point(run_id) < self.canary_share:
            return self.canary
        return self.active or self.newest


def _point(run_id: str) -> float:
    """Return a run's point between 0 and 1. The id is hashed, because partitions depend on the id
    itself."""
    digest = hashlib.blake2b(run_id.encode(), digest_size=8, person=b"hocket.canary").digest()
    return int.from_bytes(digest) / _POINTS
