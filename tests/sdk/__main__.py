"""`make sdk-test`: the wheel of the SDK in fresh environments, beside a platform. Needs uv and an index.

For each Python that is here, with the newest and the oldest dependencies it allows: install the wheel
and nothing else, print how many packages and bytes that is, and run a node type of its own beside a
platform without workers: three processes, rolled to a new version while runs come. Then ask whether it
installs beside agent frameworks. Exit code 1 where something does not hold.
"""

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
from pathlib import Path

import structlog

from hocket.cli.local.platform import Platform
from sdk.environments import FRAMEWORKS, RESOLUTIONS, Environment, conflicts, pythons
from sdk.rolling import roll
from sdk.wheel import build_wheel

MAX_PACKAGES = 12
MAX_BYTES = 25 * 1024 * 1024


def main() -> int:
    """Play, print, and tell by the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sdk", description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="runs that come while it is rolled")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    folder = Path(tempfile.mkdtemp(prefix="hocket-sdk-"))
    try:
        faults = asyncio.run(_play(folder, given.runs))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for fault in faults:
        print(f"FAULT {fault}")
    return 1 if faults else 0


async def _play(folder: Path, runs: int) -> list[str]:
    wheel = build_wheel(folder)
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes")
    faults: list[str] = []
    async with Platform(folder / "platform", services=("coordinator", "admin")) as platform:
        for version, python in pythons().items():
            for resolution in RESOLUTIONS:
                made = Environment.make(folder, wheel, version, python, resolution)
                size = f"{len(made.packages)} packages, {made.size_bytes / 1e6:.1f} MB installed"
                print(f"python {version}, {resolution} dependencies: {size}")
                if len(made.packages) > MAX_PACKAGES or made.size_bytes > MAX_BYTES:
                    faults.append(f"{version}, {resolution}: too large")
                rolled = await roll(platform, made, runs)
                print(f"  {rolled.told()}")
                faults += [f"{version}, {resolution}: {fault}" for fault in rolled.faults()]
    for framework in FRAMEWORKS:
        conflict = conflicts(folder, wheel, framework)
        print(f"beside {framework}: {'a conflict' if conflict else 'no conflict'}")
        if conflict:
            faults.append(f"beside {framework}: {conflict}")
    return faults


if __name__ == "__main__":
    sys.exit(main())
