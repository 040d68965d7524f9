"""The bench of a worker's step plays steps, alone and in bundles, and prints what they took."""

import json
import subprocess
import sys

from bench.support.places import ROOT


def test_it_prints_the_cpu_time_of_a_step() -> None:
    command = [sys.executable, "-m", "bench.steps.worker_step"]
    options = ["--rounds", "2", "--steps", "120", "--bundle", "1", "4", "--calls"]
    ran = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one["bundle"] for one in told] == [1, 4]
    assert all(0 < one["us"]["best"] <= one["us"]["median"] for one in told)
    assert "calls a step" in ran.stderr
