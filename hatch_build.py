"""The build hook of `make wheel`: the hot parts of the coordinator as C, beside their sources.

It does something only where HOCKET_COMPILE says so, for a wheel that is no editable install. Where
something is missing for it (a compiler, mypy, setuptools), the wheel is the plain one, and the build
says why.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "HOCKET_COMPILE"
REPLACEABLE = "HOCKET_REPLACEABLE"
"""Names of functions that tests of the wheel replace, separated by spaces."""
SCRIPT = Path("deploy") / "compiled_parts.py"


class CompiledParts(BuildHookInterface):  # type: ignore[type-arg]
    """Adds what `deploy/compiled_parts.py` makes to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and let the wheel be one of this machine's kind; skip it where that fails."""
        if version != "standard" or os.environ.get(SWITCH) != "1":
            return
        self._made = tempfile.TemporaryDirectory(prefix="hocket-compiled-")
        made = Path(self._made.name)
        names = os.environ.get(REPLACEABLE, "").split()
        ran = subprocess.run(
            [sys.executable, Path(self.root) / SCRIPT, made, "--replaceable", *names],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            said = (ran.stdout + ran.stderr).strip().splitlines()
            self.app.display_warning(
                f"nothing is compiled, the wheel is the plain one: {said[-1:]}"
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for file in sorted(made.rglob("*")):
            if file.is_file():
                build_data["force_include"][str(file)] = str(file.relative_to(made))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the wheel."""
        del version, build_data, artifact_path
        if hasattr(self, "_made"):
            self._made.cleanup()
