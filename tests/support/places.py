"""Folders of the repository that tests read."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DATA = Path(os.environ.get("HOCKET_DATA", ROOT.parent / "shared" / "data"))
"""Real data sets, which are not part of the repository; tests skip what is missing."""

HANDLERS = str(TESTS / "support" / "handlers")
"""PYTHONPATH for worker and gateway processes, which import modules of that folder."""
FLOW_FAULTS = str(Path(__file__).parent / "flow_faults")
"""Folder with handlers, and with the code that kills coordinators at points of flow control:
`flow_faults/sitecustomize.py`."""
