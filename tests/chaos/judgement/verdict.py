"""What was violated, and what there was to violate."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Verdict:
    """The violations, and counts of what was looked at."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fail(self, rule: str, what: str) -> None:
        """Note a violation."""
        self.violations.append(f"{rule}: {what}")
