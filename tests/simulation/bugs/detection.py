"""Find out whether the planted bugs are caught: by which check, and after how many seeds.

`python -m simulation.bugs.detection` plays each bug, or those that are named, until it is caught. With
`--write` it updates the table in docs/explanation/simulation.md; `test_simulation.py` checks that the
table is true. It fails if a bug survives LIMIT seeds.
"""

import argparse
import gc
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from simulation.bugs.planted import BUGS
from simulation.platform.scenario import play, seed_of
from support.places import ROOT

LIMIT = 2_000
COLLECT_EVERY = 20
"""In seeds. A play leaves many reference cycles behind, but there are too few allocations between two
plays to trigger the garbage collector."""
PAGE = ROOT / "docs" / "explanation" / "simulation.md"
NOTHING = "**nothing**"
ROW = re.compile(r"^\| ([\w-]+) \| .* \| (`[\w-]+`|\*\*nothing\*\*) \| (\d+) \|$", re.MULTILINE)
BEGIN, END = "<!-- planted bugs: begin -->", "<!-- planted bugs: end -->"


@dataclass(frozen=True)
class Caught:
    bug: str
    seeds: int
    check: str | None
    detail: str = ""


def hunt(bug: str, limit: int = LIMIT) -> Caught:
    """Play a bug with one seed after another until a check fails."""
    for seed in range(1, limit + 1):
        violation = play(seed_of(BUGS[bug].kind, seed), bug=BUGS[bug].patch).violation
        if violation is not None:
            return Caught(bug, seed, *violation)
        if seed % COLLECT_EVERY == 0:
            gc.collect()
    return Caught(bug, limit, None)


def table(found: Iterable[Caught]) -> str:
    lines = ["| bug | what is wrong | caught by | seeds |", "|---|---|---|---|"]
    for caught in found:
        check = f"`{caught.check}`" if caught.check else NOTHING
        lines.append(f"| {caught.bug} | {BUGS[caught.bug].text} | {check} | {caught.seeds} |")
    return "\n".join(lines)


def told() -> dict[str, Caught]:
    """Return what the page says about each bug."""
    rows = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    return {
        bug: Caught(bug, int(seeds), None if check == NOTHING else check.strip("`"))
        for bug, check, seeds in ROW.findall(rows)
    }


def write(found: list[Caught]) -> None:
    """Write the findings into the page, keeping its rows about other bugs."""
    known = {bug: one for bug, one in told().items() if bug in BUGS}
    known |= {one.bug: one for one in found}
    before, after = PAGE.read_text().split(BEGIN)[0], PAGE.read_text().split(END)[1]
    rows = table(known[bug] for bug in BUGS if bug in known)
    PAGE.write_text(f"{before}{BEGIN}\n{rows}\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation.bugs.detection", description=__doc__)
    parser.add_argument("bugs", nargs="*", default=list(BUGS), help="all, where none is named")
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    found = []
    with ProcessPoolExecutor(options.jobs) as workers:
        hunts = [workers.submit(hunt, bug, options.limit) for bug in options.bugs]
        for waiting in hunts:
            caught = waiting.result()
            found.append(caught)
            print(f"{caught.bug:32} {caught.seeds:5} {caught.check} {caught.detail}", flush=True)
    if options.write:
        write(found)
    return 1 if any(caught.check is None for caught in found) else 0


if __name__ == "__main__":
    sys.exit(main())
