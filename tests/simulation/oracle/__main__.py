"""`python -m simulation.oracle`: play seeds, and compare the new core with the coordinator's in all of
them.

For each seed that differs the first difference is told, with its event and place; at the end what was
compared, by construct.
"""

import argparse
import gc
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from simulation.oracle.constructs import SUPPORTED
from simulation.oracle.drive import driven
from simulation.oracle.play import compared
from simulation.oracle.shadow import Report

CHUNK = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation.oracle", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--drive", action="store_true", help="random events without a platform")
    parser.add_argument("--stop", action="store_true", help="stop at the first difference")
    options = parser.parse_args()
    begun_s = time.monotonic()
    whole = Report()
    last = options.seed + options.seeds
    chunks = [range(at, min(at + CHUNK, last)) for at in range(options.seed, last, CHUNK)]
    with ProcessPoolExecutor(options.jobs) as workers:
        for reports in workers.map(partial(compared_chunk, drive=options.drive), chunks):
            for seed, report in reports:
                whole.add(report)
                for one in report.found[:1]:
                    print(f"seed {seed}: {one}", flush=True)
            if whole.found and options.stop:
                workers.shutdown(cancel_futures=True)
                break
    for name, count in sorted(whole.counts.items()):
        print(f"{count:9} {name}")
    print("runs by construct: " + ", ".join(f"{n} {c}" for n, c in sorted(whole.runs_with.items())))
    unsupported = sorted(whole.runs_with.keys() - SUPPORTED)
    if unsupported:
        print(f"not supported: {', '.join(unsupported)}")
    print(f"{whole.counts['differences']} differences in {time.monotonic() - begun_s:.0f} s")
    return 1 if whole.counts["differences"] else 0


def compared_chunk(seeds: range, *, drive: bool) -> list[tuple[int, Report]]:
    """Compare some seeds in a worker process."""
    play = driven if drive else compared
    found = [(seed, play(str(seed))) for seed in seeds]
    gc.collect()
    return found


if __name__ == "__main__":
    sys.exit(main())
