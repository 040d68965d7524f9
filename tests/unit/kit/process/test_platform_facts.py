"""The facts of a running platform, where what stands in their file is none."""

import os
from pathlib import Path

import pytest

from hocket.kit.child_processes.launcher import identity
from hocket.kit.process.platform_facts import (
    PlatformFacts,
    read_facts,
    remove_facts,
    write_facts,
)

REST = (
    '"version": "", "data_dir": "", "nats_url": "", "database_url": "", "api_url": null, '
    '"processes": {}'
)


@pytest.mark.parametrize(
    "text",
    [
        *(f'{{"pid": {pid}, {REST}}}' for pid in ('"1"', "-1", "0", "9" * 30, "[]", "1.5")),
        "[" * 50_000,
        "null",
        '{"pid": 1}',
    ],
)
def test_what_are_no_facts_tell_of_no_platform(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "platform.json").write_text(text)
    assert read_facts(tmp_path) is None


def test_a_folder_in_their_place_tells_of_none_either(tmp_path: Path) -> None:
    (tmp_path / "run" / "platform.json").mkdir(parents=True)
    assert read_facts(tmp_path) is None
    remove_facts(tmp_path)
    (tmp_path / "file").touch()
    remove_facts(tmp_path / "file")


def test_a_process_that_has_the_number_of_a_killed_platform_is_none(tmp_path: Path) -> None:
    """Its addresses may be another user's by now, who would be sent the admin key."""
    facts = PlatformFacts(os.getpid(), "", str(tmp_path), "", "", None, {})
    write_facts(tmp_path, facts)
    assert read_facts(tmp_path) == facts

    pid, started, boot = (identity(os.getpid()) or "").split()
    earlier = f"{pid} {int(started) - 1} {boot}\n"
    (tmp_path / "run" / "platform.process").write_text(earlier)
    assert read_facts(tmp_path) is None

    remove_facts(tmp_path)
    assert not list((tmp_path / "run").iterdir())


def test_facts_of_an_earlier_release_are_known_by_the_number_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "platform.json").write_text(f'{{"pid": {os.getpid()}, {REST}}}')
    assert read_facts(tmp_path) is not None
    (tmp_path / "run" / "platform.process").write_text("1 2 of another platform")
    assert read_facts(tmp_path) is not None
