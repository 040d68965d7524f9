"""The bench of a coordinator's step plays its runs to their ends and prints what they took."""

import json
import subprocess
import sys

from bench.support.places import ROOT


def test_it_prints_the_cpu_time_of_a_step() -> None:
    command = [sys.executable, "-m", "bench.steps.coordinator_step"]
    options = ["--workloads", "agent6", "--rounds", "2", "--runs", "30"]
    ran = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    told = json.loads(ran.stdout)
    assert (told["workload"], told["steps"]) == ("agent6", 180)
    assert 0 < told["us"]["best"] <= told["us"]["median"]
