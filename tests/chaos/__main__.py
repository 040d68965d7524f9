"""`python -m chaos --minutes 5 --seed 1`: exits with 0 if nothing was violated, otherwise with 1.
`--faults N` plays the first N faults of the plan instead; `--at-once N` allows N faults at a time;
`--inline-gateway` runs the gateways in the workers' processes."""

import argparse
import asyncio
import logging
import sys

import structlog

from chaos.injection import MAX_AT_ONCE
from chaos.play import play


def main() -> int:
    """Play, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=MAX_AT_ONCE)
    parser.add_argument("--inline-gateway", action="store_true")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    seconds = 0.0 if given.faults else given.minutes * 60
    played = asyncio.run(
        play(
            given.seed,
            seconds=seconds,
            number=given.faults,
            at_once=given.at_once,
            inline_gateway=given.inline_gateway,
        )
    )
    for line in played.report():
        print(line)
    return 0 if played.ok else 1


if __name__ == "__main__":
    sys.exit(main())
