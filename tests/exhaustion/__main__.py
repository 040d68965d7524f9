"""`python -m exhaustion [NAME ...]`: play shortages and print a line of JSON for each. Exits with 0 if
nothing was lost and everything recovered in time. `--seconds` is the duration of each, `--rate` the
tasks per second."""

import argparse
import asyncio
import logging
import os
import sys

import structlog

from exhaustion.play import ON_A_DISK, PLAYS, ROOM_S, play
from exhaustion.small_disk import NAMESPACE, enter, mounts_are_allowed


def main() -> int:
    """Play, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m exhaustion", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PLAYS))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=20.0)
    given = parser.parse_args()
    names = given.names or list(PLAYS)
    if any(name in ON_A_DISK for name in names) and not os.environ.get(NAMESPACE):
        if mounts_are_allowed():
            enter(["-m", "exhaustion", *sys.argv[1:]])
        print("skipped: no file system can be mounted here, " + ", ".join(ON_A_DISK))
        names = [name for name in names if name not in ON_A_DISK]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    return asyncio.run(_played(names, given.seconds, given.rate))


async def _played(names: list[str], seconds: float, rate: float) -> int:
    ok = True
    async for played in play(names, seconds=seconds, rate=rate):
        print(played.as_json(), flush=True)
        in_time = played.first_end_after_s is not None and played.first_end_after_s <= ROOM_S
        ok = ok and in_time and not played.violations
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
