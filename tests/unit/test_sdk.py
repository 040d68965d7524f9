"""The wheel of the SDK holds all that it needs, and needs no more than it says."""

import json
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sdk.wheel import build_wheel
from support.places import ROOT

MAX_PACKAGES = 12
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SDK = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text("utf-8"))["project"]
IMPORT_ALL = """
import importlib, json, sys

wheel, third_party, allowed = json.loads(sys.argv[1])
sys.path[:] = [path for path in sys.path if "site-packages" not in path]
sys.path += [wheel, third_party]


class OnlyAllowed:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in allowed or top in sys.stdlib_module_names or top.startswith("_sysconfigdata"):
            return None
        raise ModuleNotFoundError(f"{name} is not among the SDK's dependencies", name=name)


sys.meta_path.insert(0, OnlyAllowed())
for name in json.loads(sys.argv[2]):
    module = importlib.import_module(name)
    assert module.__file__ is None or module.__file__.startswith(wheel), module.__file__
"""


def closure() -> set[str]:
    """The distributions that come with the SDK, itself apart."""
    found: set[str] = set()
    waiting = [Requirement(text).name for text in SDK["dependencies"]]
    while waiting:
        name = waiting.pop().lower()
        if name in found:
            continue
        found.add(name)
        for text in distribution(name).requires or ():
            required = Requirement(text)
            if required.marker is None or required.marker.evaluate({"extra": ""}):
                waiting.append(required.name)
    return found


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdk")
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_every_module_of_the_wheel_is_imported_with_its_dependencies_alone(unpacked: Path) -> None:
    files = sorted(file.relative_to(unpacked) for file in unpacked.rglob("*.py"))
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    for extra in ("faststream", "langgraph", "openai_agents", "pydantic_ai"):
        names.remove(f"hocket.worker.{extra}")
    assert len(names) > 80
    allowed = {"hocket"}
    for name in closure():
        tops = (distribution(name).read_text("top_level.txt") or "").split()
        allowed |= {name.replace("-", "_"), *tops}
    allowed |= {"nats", "typing_extensions", "typing_inspection"}
    third_party = next(path for path in sys.path if path.endswith("site-packages"))
    given = json.dumps([str(unpacked), third_party, sorted(allowed)])
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT_ALL, given, json.dumps(names)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


def test_it_says_that_it_is_typed_and_has_its_command(unpacked: Path) -> None:
    for package in ("kit", "schemas", "worker", "workers"):
        assert (unpacked / "hocket" / package / "py.typed").exists()
    assert not (unpacked / "hocket" / "__init__.py").exists()
    (entry_points,) = unpacked.rglob("entry_points.txt")
    assert "hocket-worker = hocket.worker.command:main" in entry_points.read_text()


def test_it_comes_with_few_packages_and_the_version_of_the_whole() -> None:
    assert len(closure()) + 1 <= MAX_PACKAGES
    assert SDK["version"] == PROJECT["version"]
    assert SDK["requires-python"] == PROJECT["requires-python"]
