"""Fresh environments with nothing but the SDK's wheel and what it brings."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from support.places import ROOT

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
RESOLUTIONS = ("newest", "oldest")
FRAMEWORKS = ("langgraph", "pydantic-ai", "openai-agents")

UV = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
"""Makes the environments; `make sdk-test` installs it."""


@dataclass(frozen=True)
class Environment:
    """One environment; `name` tells it from the others."""

    name: str
    folder: Path
    packages: tuple[str, ...]
    size_bytes: int

    @classmethod
    def make(
        cls, folder: Path, wheel: Path, version: str, python: str, resolution: str
    ) -> "Environment":
        """Install the wheel into an environment of its own."""
        place = folder / f"{version}-{resolution}"
        _uv("venv", "--quiet", "--python", python, "--no-python-downloads", str(place))
        oldest = _oldest() if resolution == "oldest" else []
        _uv("pip", "install", "--quiet", "--python", str(place), str(wheel), *oldest)
        listed = _uv("pip", "list", "--quiet", "--format", "freeze", "--python", str(place))
        (installed,) = place.glob("lib/python*/site-packages")
        size = sum(file.stat().st_size for file in installed.rglob("*") if file.is_file())
        return cls(f"{version}-{resolution}", place, tuple(listed.split()), size)

    @property
    def command(self) -> Path:
        return self.folder / "bin" / "hocket-worker"


def pythons() -> dict[str, str]:
    """Return the interpreters on this machine that the SDK is for, by their version."""
    found: dict[str, str] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for version in VERSIONS:
        named = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")]
        for path in filter(None, named):
            asked = "import sys; print('%d.%d' % sys.version_info[:2])"
            ended = subprocess.run(
                [str(path), "-c", asked], check=False, capture_output=True, text=True
            )
            if ended.stdout.strip() == version:
                found.setdefault(version, str(path))
    return found


def conflicts(folder: Path, wheel: Path, framework: str) -> str:
    """Return why the SDK and the current release of a framework cannot be installed together; nothing
    where they can."""
    asked = folder / "together.in"
    asked.write_text(f"hocket-worker @ {wheel.as_uri()}\n{framework}\n")
    ended = subprocess.run(
        [UV, "pip", "compile", "--quiet", "--no-header", str(asked)],
        check=False,
        capture_output=True,
        text=True,
    )
    return "" if ended.returncode == 0 else ended.stderr.strip()[:500]


def _oldest() -> list[str]:
    """Return the oldest versions that the SDK's dependencies name."""
    project = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text("utf-8"))["project"]
    named = [re.match(r"([\w-]+)>=([\d.]+)", text) for text in project["dependencies"]]
    return [f"{one[1]}=={one[2]}.*" for one in named if one is not None]


def _uv(*arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    ended = subprocess.run(
        [UV, *arguments], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    return ended.stdout
