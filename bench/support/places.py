"""Folders of the repository that benchmarks use."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
DATA = Path(os.environ.get("HOCKET_DATA", ROOT.parent / "shared" / "data"))
"""Real data sets, which are not part of the repository."""

HANDLERS = str(BENCH / "support")
"""PYTHONPATH for worker and gateway processes, which import `handlers` and the models of that folder."""
