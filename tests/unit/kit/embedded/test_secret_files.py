"""Files of secrets are whole whoever writes them at the same time."""

import os
from pathlib import Path

import pytest

from hocket.kit.embedded.secret_files import write_private


def test_two_processes_that_write_at_once_do_not_take_each_others_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "contexts.json"
    fsync = os.fsync

    def another_writes_meanwhile(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        write_private(file, "the other's")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", another_writes_meanwhile)
    write_private(file, "ours")

    assert file.read_text() == "ours\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["contexts.json"]


def test_a_disk_without_room_leaves_the_former_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "contexts.json"
    write_private(file, "former")

    def has_no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", has_no_room)
    with pytest.raises(OSError, match="No space left"):
        write_private(file, "new")

    assert (file.read_text(), os.listdir(tmp_path)) == ("former\n", ["contexts.json"])
