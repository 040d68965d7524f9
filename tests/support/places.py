"""Folders of the repository that tests read."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DATA = Path(os.environ.get("HOCKET_DATA", ROOT.parent / "shared" / "data"))
"""Real data sets, which are not part of the repository; tests skip what is missing."""


def first(folder: Path) -> str:
    """Return a PYTHONPATH with a folder before what is there: the processes of tests load the wheel that
    the tests were started on."""
    return os.pathsep.join(part for part in (str(folder), os.environ.get("PYTHONPATH")) if part)


HANDLERS = first(TESTS / "support" / "handlers")
"""PYTHONPATH for worker and gateway processes, which import modules of that folder."""
FLOW_FAULTS = first(Path(__file__).parent / "flow_faults")
"""PYTHONPATH with handlers, and with the code that kills coordinators at points of flow control:
`flow_faults/sitecustomize.py`."""
PACKAGES = first(TESTS)
"""PYTHONPATH for handlers in packages of the tests."""
