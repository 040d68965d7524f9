"""The wheel of the SDK, built from this checkout without a network."""

import subprocess
import sys
from pathlib import Path

from support.places import ROOT

BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of `sdk/` into a folder and return it."""
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=ROOT / "sdk",
        check=True,
        capture_output=True,
        text=True,
    )
    return folder / built.stdout.split()[-1]
