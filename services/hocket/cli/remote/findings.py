"""What a check of `hocket doctor` found."""

from dataclasses import dataclass
from enum import StrEnum


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
