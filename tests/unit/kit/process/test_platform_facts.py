"""The facts of a running platform, where what stands in their file is none."""

from pathlib import Path

import pytest

from hocket.kit.process.platform_facts import read_facts, remove_facts

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
