"""The house stands as designed: one namespace over three folders, nothing that breaks it."""

from pathlib import Path

import hocket

ROOT = Path(__file__).parents[2]
FOLDERS = ("schemas", "services", "workers")


def test_hocket_is_a_namespace_over_exactly_three_folders() -> None:
    assert sorted(hocket.__path__) == sorted(str(ROOT / folder / "hocket") for folder in FOLDERS)


def test_no_folder_claims_the_namespace_for_itself() -> None:
    assert not [f for f in FOLDERS if (ROOT / f / "hocket" / "__init__.py").exists()]


def test_every_package_says_that_it_is_typed() -> None:
    packages = [p for f in FOLDERS for p in (ROOT / f / "hocket").iterdir() if p.is_dir()]
    named = [p for p in packages if (p / "__init__.py").exists()]
    assert len(named) >= 8
    assert not [p.name for p in named if not (p / "py.typed").exists()]


def test_no_two_test_files_share_a_name() -> None:
    """pytest imports them by their base names."""
    names = [file.name for file in (ROOT / "tests").rglob("test_*.py")]
    assert not {name for name in names if names.count(name) > 1}


def test_a_core_imports_nothing_of_the_world() -> None:
    """The linter checks imports; this checks that the linter is told to."""
    text = (ROOT / "pyproject.toml").read_text()
    for core in ("hocket.coordinator.core", "hocket.gateway.core", "hocket.schemas"):
        assert f'"{core}"' in text
