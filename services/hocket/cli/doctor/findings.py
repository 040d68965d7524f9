"""The findings of `hocket doctor`."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MAX_NAMED = 8


class Verdict(StrEnum):
    """The result of a check; `note` is worth knowing but not an error."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `cure` says what to do if the verdict is not ok."""

    name: str
    verdict: Verdict
    found: str
    cure: str = ""


def listed(names: Iterable[object], most: int = MAX_NAMED) -> str:
    """Join names with commas; of many, only the first, and how many more there are."""
    all_of_them = [str(name) for name in names]
    more = f" and {len(all_of_them) - most} more" if len(all_of_them) > most else ""
    return ", ".join(all_of_them[:most]) + more
