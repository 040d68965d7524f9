"""Which version of a pipeline a run takes that names none."""

import hashlib
from dataclasses import dataclass

_POINTS = 2**64


@dataclass(frozen=True, slots=True)
class Release:
    """What is chosen for a pipeline: its `active` version, or the `newest` where none is; of its runs
    the share `canary_share` takes the version `canary`, where there is one."""

    newest: int
    active: int | None = None
    canary: int | None = None
    canary_share: float = 0.0
    is_archived: bool = False

    def version_for(self, run_id: str) -> int:
        """Return the version of a run: the same one however often it is asked for."""
        if self.canary is not None and _point(run_id) < self.canary_share:
            return self.canary
        return self.active or self.newest


def _point(run_id: str) -> float:
    """Return where a run lies between 0 and 1. Its id is hashed: partitions go by the id itself."""
    digest = hashlib.blake2b(run_id.encode(), digest_size=8, person=b"hocket.canary").digest()
    return int.from_bytes(digest) / _POINTS
