"""The gist of a plan that Postgres explains: the steps that saw rows, and how many."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_STEP = re.compile(
    r"^ *(?:->  )?(?P<what>.+?)(?:  \(cost=[^()]*\))?"
    r" \([^()]*actual [^()]*rows=(?P<rows>[\d.]+) loops=(?P<loops>\d+)\)$"
)
_THROUGH = re.compile(r"Subquery Scan|Result\b|Append\b|Unique\b|Memoize\b|Materialize\b")
"""Steps that only pass rows on: what is below them is shown in their place."""
_PAGES = "Bitmap Index Scan"
"""A step that finds pages and not rows."""
_ALIAS = re.compile(r" on (\S+) \S+$")


@dataclass
class _Step:
    what: str
    rows: int
    indent: int
    below: list["_Step"] = field(default_factory=list)

    @property
    def rows_seen(self) -> int:
        """The most rows of this step and of those below it."""
        return max(self.rows, *(step.rows_seen for step in self.below), 0)


def gist(plan: Iterable[str]) -> Iterator[str]:
    """Yield the steps of a plan of EXPLAIN ANALYZE with their rows in all loops, indented by depth.
    What was never executed, or found nothing from the bottom up, is left out."""
    top = _Step("", 0, -1)
    path = [top]
    for line in plan:
        indent = len(line) - len(line.lstrip())
        found = _STEP.match(line)
        if found is None or found["what"].startswith(_PAGES):
            continue
        rows = round(float(found["rows"]) * int(found["loops"]))
        step = _Step(_ALIAS.sub(r" on \1", found["what"]), rows, indent)
        while path[-1].indent >= indent:
            path.pop()
        path[-1].below.append(step)
        path.append(step)
    yield from _lines(top.below, "")


def _lines(steps: Iterable[_Step], margin: str) -> Iterator[str]:
    for step in steps:
        if not step.rows_seen:
            continue
        deeper = margin
        if not _THROUGH.match(step.what):
            yield f"{margin}{step.what}: {step.rows:,}"
            deeper += "  "
        yield from _lines(step.below, deeper)
