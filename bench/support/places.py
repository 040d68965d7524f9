"""Folders of the repository that benchmarks use."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
DATA = Path(os.environ.get("HOCKET_DATA", ROOT.parent / "shared" / "data"))
"""Real data sets, which are not part of the repository."""

HANDLERS = os.pathsep.join(
    part for part in (str(BENCH / "support"), os.environ.get("PYTHONPATH")) if part
)
"""PYTHONPATH for worker and gateway processes, which import `handlers` and the models of that folder:
before what is there, so that a compiled wheel which a bench is given is what its processes run."""
