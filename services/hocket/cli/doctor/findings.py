"""What a check of `hocket doctor` found."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MAX_NAMED = 8


class Verdict(StrEnum):
    """`note` is worth knowing and no fault."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `cure` says what to do where the verdict is not ok."""

    name: str
    verdict: Verdict
    found: str
    cure: str = ""


def listed(names: Iterable[object], most: int = MAX_NAMED) -> str:
    """Return names with commas between them; of many the first, and how many more there are."""
    all_of_them = [str(name) for name in names]
    more = f" and {len(all_of_them) - most} more" if len(all_of_them) > most else ""
    return ", ".join(all_of_them[:most]) + more
