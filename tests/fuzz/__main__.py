"""`python -m fuzz --minutes 10 --seed 1 --rate 500`: exits with 0 if nothing was violated, otherwise
with 1. `--runs` is the number of healthy runs per second."""

import argparse
import asyncio
import logging
import sys

import structlog

from fuzz.play import play


def main() -> int:
    """Play, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=500.0, help="forged messages a second")
    parser.add_argument("--runs", type=float, default=100.0, help="healthy runs a second")
    parser.add_argument("--late-ms", type=float, default=1_000.0)
    parser.add_argument("--keep", action="store_true", help="keep the platform's folder")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    played = asyncio.run(
        play(
            given.seed,
            seconds=60 * given.minutes,
            rate=given.rate,
            runs_per_s=given.runs,
            late_ms=given.late_ms,
            keep=given.keep,
        )
    )
    for line in played.report():
        print(line)
    return 1 if played.violations else 0


if __name__ == "__main__":
    sys.exit(main())
