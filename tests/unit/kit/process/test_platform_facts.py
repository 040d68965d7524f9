"""The facts of a running platform, where what stands in their file is none."""

import os
from pathlib import Path

import pytest

from hocket.kit.child_processes.launcher import identity
from hocket.kit.process.platform_facts import (
    LeftFacts,
    PlatformFacts,
    left_facts,
    read_facts,
    remove_facts,
    write_facts,
)

DEAD = 2**22 + 1
"""The id of no process: it is above the highest one."""
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
    if '"pid": -1' not in text and '"pid": 0' not in text:
        assert left_facts(tmp_path) is None


def test_a_folder_in_their_place_tells_of_none_either(tmp_path: Path) -> None:
    (tmp_path / "run" / "platform.json").mkdir(parents=True)
    assert read_facts(tmp_path) is None
    remove_facts(tmp_path)
    (tmp_path / "file").touch()
    remove_facts(tmp_path / "file")


def test_a_process_that_has_the_number_of_a_killed_platform_is_none(tmp_path: Path) -> None:
    """Its addresses may be another user's by now, who would be sent the admin key."""
    facts = PlatformFacts(os.getpid(), "", str(tmp_path), "", "", None, {})
    assert left_facts(tmp_path) is None
    write_facts(tmp_path, facts)
    assert (read_facts(tmp_path), left_facts(tmp_path)) == (facts, None)

    pid, started, boot = (identity(os.getpid()) or "").split()
    earlier = f"{pid} {int(started) - 1} {boot}\n"
    (tmp_path / "run" / "platform.process").write_text(earlier)
    file = tmp_path / "run" / "platform.json"
    assert read_facts(tmp_path) is None
    assert left_facts(tmp_path) == LeftFacts(os.getpid(), file, was_here=True)

    remove_facts(tmp_path)
    assert left_facts(tmp_path) is None
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("part", [1, 2, 3], ids=("boot", "pid namespace", "host"))
def test_where_a_process_was_is_told_by_boot_container_and_host(tmp_path: Path, part: int) -> None:
    write_facts(tmp_path, PlatformFacts(DEAD, "", str(tmp_path), "", "", None, {}))
    place = tmp_path / "run" / "platform.place"
    assert getattr(left_facts(tmp_path), "was_here", "none") is True
    words = place.read_text().split(" ")
    place.write_text(" ".join([*words[:part], "other", *words[part + 1 :]]))
    assert getattr(left_facts(tmp_path), "was_here", "none") is False


@pytest.mark.parametrize("written", [None, "", "1 of another platform", "\udc80"])
def test_where_a_process_was_may_not_be_written(tmp_path: Path, written: str | None) -> None:
    write_facts(tmp_path, PlatformFacts(DEAD, "", str(tmp_path), "", "", None, {}))
    place = tmp_path / "run" / "platform.place"
    place.unlink()
    if written is not None:
        place.write_bytes(written.encode("utf-8", "surrogateescape"))
    assert getattr(left_facts(tmp_path), "was_here", "none") is None


def test_facts_of_an_earlier_release_are_known_by_the_number_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "platform.json").write_text(f'{{"pid": {os.getpid()}, {REST}}}')
    assert read_facts(tmp_path) is not None
    (tmp_path / "run" / "platform.process").write_text("1 2 of another platform")
    assert read_facts(tmp_path) is not None
