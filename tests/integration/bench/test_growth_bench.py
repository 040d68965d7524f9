"""A map over 10,000 items, a loop of 1,000 rounds and 20 nested sub-pipelines run on real servers, and
what they write and send per step does not depend on how many steps there are."""

import asyncio
import json
import sys
from typing import Any

import pytest

from support.places import ROOT

BENCH = "bench.throughput.growth"
WAIT_S = 110.0
COORDINATOR_MIB = 100
"""Ten thousand steps in flight take about 30 MiB."""


@pytest.mark.long
async def test_large_runs_cost_per_step_what_small_ones_cost() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        BENCH,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    by_shape: dict[str, list[dict[str, Any]]] = {}
    for line in out.decode().splitlines():
        figures = json.loads(line)
        by_shape.setdefault(figures["shape"], []).append(figures)
    largest = {shape: runs[-1]["n"] for shape, runs in by_shape.items()}
    assert largest == {"map": 10_000, "loop": 1_000, "nesting": 20}
    for shape, runs in by_shape.items():
        quarter, whole = runs[0], runs[-1]
        assert whole["bus_bytes_per_step"] < 1.5 * quarter["bus_bytes_per_step"], shape
        if shape != "nesting":  # a few dozen steps; what else Postgres writes would be the figure
            assert whole["wal_bytes_per_step"] < 1.5 * quarter["wal_bytes_per_step"], shape
        assert max(run["grown_mib"]["coordinator"] for run in runs) < COORDINATOR_MIB, shape
