"""`make conformance`: run the suite against the SDK, FastStream and a worker that was written from the
protocol alone, and against every planted fault. Exits with 1 if a worker fails, or a fault is not
caught."""

import asyncio
import logging
import os
import sys

import structlog

from conformance.faults import CAUGHT_BY, FASTSTREAM, FOLDER, RAW, SDK, faults_of
from hocket.cli.conformance.checks import CHECKS
from hocket.cli.conformance.journal_checks import CALL_CHECKS, JOURNAL_CHECKS, WAIT_CHECKS
from hocket.cli.conformance.play import play


async def main() -> int:
    """Play everything and print the results."""
    os.environ["PYTHONPATH"] = str(FOLDER.parent)
    wrong = 0
    for name, command in (("SDK", SDK), ("FastStream", FASTSTREAM), ("raw", RAW)):
        found = await play(
            command,
            [*CHECKS, *(() if command is RAW else JOURNAL_CHECKS | WAIT_CHECKS | CALL_CHECKS)],
        )
        failed = {check: fault for check, fault in found.items() if fault}
        wrong += len(failed)
        print(f"{name} worker: {len(found) - len(failed)} of {len(found)} checks passed", failed)
    for fault in CAUGHT_BY:
        told = await faults_of(fault)
        wrong += told is None
        print(f"{fault}: {(told or 'NOT CAUGHT').splitlines()[0]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    sys.exit(asyncio.run(main()))
