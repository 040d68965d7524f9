"""`python -m simulation`: play seeds, and report the first that shows a violation.

`make sim SEED=1 SEEDS=1000 JOBS=2` plays the seeds from SEED on. With one seed (`SEEDS=1`) its trace is
printed; `BUG=name` plants a bug of `bugs/planted.py`; `KIND=bundles` plays steps in bundles, `waits`
handlers that wait, `calls` handlers that call nodes, `flows` flow control. A failing seed is reported
with the command that replays it.
"""

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

from simulation.bugs.planted import BUGS
from simulation.platform.bundles import BUNDLES
from simulation.platform.handlers import CALLING, WAITING
from simulation.platform.scenario import FLOWING, Outcome, play, seed_of

CHUNK = 20
PROGRESS_S = 10.0
MAX_LINES = 400
ALWAYS = ("fault", "check", "postgres")
"""Sources that are shown in every trace, whatever run it is about."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind", choices=("", BUNDLES, WAITING, CALLING, FLOWING), default="")
    parser.add_argument("--bug", choices=list(BUGS), default=None)
    parser.add_argument("--all", action="store_true", help="print the whole trace")
    parser.add_argument("--go-on", action="store_true", help="tell of every violation")
    options = parser.parse_args()
    if options.seeds == 1:
        return _tell(_played(options.seed, options, verbose=True), options)
    return _play_many(options)


def _play_many(options: argparse.Namespace) -> int:
    seeds = iter(range(options.seed, options.seed + options.seeds))
    chunks = iter(lambda: list(islice(seeds, CHUNK)), [])
    begun_s = told_s = time.monotonic()
    total = Counter[str]()
    failed: list[Outcome] = []
    fewer_looks = partial(gc.set_threshold, 50_000, 20, 20)  # for cycles: 4 % more seeds a second
    with ProcessPoolExecutor(options.jobs, initializer=fewer_looks) as workers:
        for outcomes in _results(workers, chunks, options):
            for outcome in outcomes:
                total.update({"seeds": 1, "virtual seconds": round(outcome.seconds)})
                total.update(outcome.runs)
                if outcome.violation is not None:
                    failed.append(outcome)
                    print(f"seed {outcome.seed}: {': '.join(outcome.violation)}", flush=True)
            if failed and not options.go_on:
                break
            if time.monotonic() - told_s > PROGRESS_S:
                told_s = time.monotonic()
                rate = total["seeds"] / (told_s - begun_s)
                print(f"{total['seeds']} seeds, {rate:.1f} a second", file=sys.stderr, flush=True)
        workers.shutdown(cancel_futures=True)
    took_s = time.monotonic() - begun_s
    figures = ", ".join(f"{name} {count}" for name, count in sorted(total.items()))
    print(f"{figures}; {len(failed)} violations in {took_s:.0f} s")
    if not failed:
        return 0
    first = min(number_of(outcome) for outcome in failed)
    return _tell(_played(first, options, verbose=True), options)


def _results(
    workers: ProcessPoolExecutor, chunks: Iterator[list[int]], options: argparse.Namespace
) -> Iterator[list[Outcome]]:
    """Keep the workers busy with a few chunks each; yield the results."""

    def begin(chunk: list[int]) -> Future[list[Outcome]]:
        return workers.submit(play_chunk, chunk, options)

    playing = {begin(chunk) for chunk in islice(chunks, 2 * options.jobs)}
    while playing:
        done, playing = wait(playing, return_when=FIRST_COMPLETED)
        for each in done:
            yield each.result()
            playing |= {begin(chunk) for chunk in islice(chunks, 1)}


def play_chunk(seeds: list[int], options: argparse.Namespace) -> list[Outcome]:
    """Play some seeds in a worker process."""
    return [_played(seed, options) for seed in seeds]


def _played(seed: int, options: argparse.Namespace, *, verbose: bool = False) -> Outcome:
    patch: Any = nullcontext if options.bug is None else BUGS[options.bug].patch
    return play(seed_of(options.kind, seed), bug=patch, verbose=verbose)


def number_of(outcome: Outcome) -> int:
    """Return the number in a seed, whatever the kind of play."""
    return int(outcome.seed.rpartition("-")[2])


def _tell(outcome: Outcome, options: argparse.Namespace) -> int:
    """Print the trace of a play: the entries about the run that a violation names, and what happened
    around it."""
    run = _named_run(outcome)
    lines = [
        f"{at_s:10.5f}  {who:15} {what}"
        for at_s, who, what in outcome.trace
        if options.all or run is None or run in what or who in ALWAYS or _is_life(what)
    ]
    if len(lines) > MAX_LINES and not options.all:
        print(f"... {len(lines) - MAX_LINES} lines before; --all prints every line")
        lines = lines[-MAX_LINES:]
    print("\n".join(line[:300] for line in lines))
    print(f"trace {outcome.trace_hash}, {outcome.steps} steps, {outcome.seconds:.1f} s of its time")
    if outcome.violation is None:
        print(f"no violation; runs: {outcome.runs}")
        return 0
    check, text = outcome.violation
    bug = f" BUG={options.bug}" if options.bug else ""
    print(f"\nVIOLATION of `{check}` {text}")
    kind = f" KIND={options.kind}" if options.kind else ""
    print(f"replay it with: make sim SEED={number_of(outcome)} SEEDS=1{kind}{bug}")
    return 1


def _named_run(outcome: Outcome) -> str | None:
    words = outcome.violation[1].replace(":", " ").split() if outcome.violation else []
    return next((w for w in words if w.startswith("r") and len(w) == 25), None)


def _is_life(what: str) -> bool:
    return what.startswith(("starts", "exits", "killed", "terminated", "crash", "boot"))


if __name__ == "__main__":
    sys.exit(main())
