"""The violations, and counts of what was checked."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Verdict:
    """The violations, and counts of what was checked."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fail(self, rule: str, what: str) -> None:
        """Record a violation."""
        self.violations.append(f"{rule}: {what}")
