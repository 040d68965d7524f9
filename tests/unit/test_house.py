"""The house stands as designed: one namespace over three folders, nothing that breaks it."""

from pathlib import Path

import pytest

import hocket
from support.places import ROOT

FOLDERS = ("schemas", "services", "workers")
UNIT = ROOT / "tests" / "unit"
MOST_FILES = 14


@pytest.mark.plain
def test_hocket_is_a_namespace_over_exactly_three_folders() -> None:
    assert sorted(hocket.__path__) == sorted(str(ROOT / folder / "hocket") for folder in FOLDERS)


def test_no_folder_claims_the_namespace_for_itself() -> None:
    assert not [f for f in FOLDERS if (ROOT / f / "hocket" / "__init__.py").exists()]


def test_every_package_says_that_it_is_typed() -> None:
    packages = [p for f in FOLDERS for p in (ROOT / f / "hocket").iterdir() if p.is_dir()]
    named = [p for p in packages if (p / "__init__.py").exists()]
    assert len(named) >= 8
    assert not [p.name for p in named if not (p / "py.typed").exists()]


def test_unit_tests_stand_in_the_rooms_of_what_they_test() -> None:
    packages = {
        p.parent.relative_to(ROOT / f / "hocket")
        for f in FOLDERS
        for p in (ROOT / f / "hocket").rglob("__init__.py")
    }
    rooms = {file.parent.relative_to(UNIT) for file in UNIT.rglob("test_*.py")} - {Path()}
    assert len(rooms) >= 20
    assert not rooms - packages


def test_no_room_of_the_tests_holds_more_than_14_files() -> None:
    rooms = [p for f in ("tests", "bench") for p in (ROOT / f).rglob("*") if p.is_dir()]
    files = {room: [f for f in room.iterdir() if f.suffix in (".py", ".sql")] for room in rooms}
    assert not [room for room, found in files.items() if len(found) > MOST_FILES]


def test_a_core_imports_nothing_of_the_world() -> None:
    """The linter checks imports; this checks that the linter is told to."""
    text = (ROOT / "pyproject.toml").read_text()
    for core in ("hocket.coordinator.core", "hocket.gateway.core", "hocket.schemas"):
        assert f'"{core}"' in text


def test_no_docstring_sends_its_reader_to_the_module() -> None:
    files = [p for f in (*FOLDERS, "tests", "bench") for p in (ROOT / f).rglob("*.py")]
    opening = '"""' + "See the module"
    assert not [p for p in files if ".venv" not in p.parts and opening in p.read_text()]


def test_each_decision_has_a_number_of_its_own_and_says_it() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [page.name.partition("-")[0] for page in pages]
    assert numbers == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page, number in zip(pages, numbers, strict=True):
        assert page.read_text("utf-8").startswith(f"# {number} "), page.name
