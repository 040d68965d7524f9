"""The overhead benchmark runs and says what it promises to say; its figures are no test's business."""

import asyncio
import json
import sys

import pytest

from support.places import ROOT

BENCH = "bench.throughput.overhead"
WAIT_S = 90.0
KEYS = [
    "system",
    "workload",
    "mode",
    "runs",
    "inflight",
    "runs_per_s",
    "steps_per_s",
    "p50_ms",
    "p99_ms",
    "per_hop_ms",
    "cpu_s_per_1000_steps",
    "rss_mb",
]


@pytest.mark.long
async def test_the_overhead_benchmark_prints_one_line_with_its_keys() -> None:
    arguments = ("--workload", "chain10", "--mode", "latency", "--runs", "20")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        BENCH,
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    (line,) = out.decode().splitlines()
    assert list(json.loads(line)) == KEYS
