"""The faults that can be planted in `raw_worker.py`, and the check that has to catch each of them."""

import os
import sys
from pathlib import Path

from hocket.cli.conformance.play import play

FOLDER = Path(__file__).parent
CAUGHT_BY = {
    "no-heartbeat": "progress",
    "ack-first": "acknowledges-after",
    "ignores-cancellation": "cancels",
    "obeys-strangers": "believes-no-stranger",
    "wrong-attempt": "answers",
    "no-capability": "answers",
    "no-message-id": "answers",
    "no-timeout": "keeps-time",
    "runs-late": "leaves-late",
    "keeps-junk": "buries-junk",
    "dies-on-error": "tells-errors",
    "inline-blobs": "blobs",
    "no-drain": "drains",
    "silent": "announces",
    "claims-bundles": "bundles",
    "no-slots": "slots",
}
RAW = (sys.executable, str(FOLDER / "raw_worker.py"))
FASTSTREAM = (sys.executable, str(FOLDER / "faststream_worker.py"))
SDK = (sys.executable, "-m", "hocket.worker.command", "conformance.sdk_worker:worker")


async def faults_of(fault: str) -> str | None:
    """Return what the suite reports about a planted fault, or None if it does not catch it."""
    os.environ["FAULT"] = fault
    try:
        return (await play(RAW, [CAUGHT_BY[fault]]))[CAUGHT_BY[fault]]
    finally:
        del os.environ["FAULT"]
