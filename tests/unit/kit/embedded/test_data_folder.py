"""The data folder: what others could have put into it is not used, and what is damaged is made anew."""

import os
from pathlib import Path

import pytest

from hocket.kit.child_processes.output import LogUnusable, opened
from hocket.kit.embedded.errors import DataFolderUnusable
from hocket.kit.embedded.folder_lock import FolderLock
from hocket.kit.embedded.ports import remembered_port
from hocket.kit.logs.log_files import shorten


def test_a_folder_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(DataFolderUnusable, match="every user may write to it"):
        FolderLock(tmp_path).acquire()
    tmp_path.chmod(0o700)
    lock = FolderLock(tmp_path)
    lock.acquire()
    lock.release()


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    if tmp_path.stat().st_uid == 0:
        os.chown(tmp_path, 4_242, -1)
        monkeypatch.setattr(os, "geteuid", lambda: 4_243)
    with pytest.raises(DataFolderUnusable, match="another user"):
        FolderLock(tmp_path).acquire()


def test_a_lock_that_is_a_link_writes_nothing_elsewhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "lock").symlink_to(other)
    with pytest.raises(DataFolderUnusable):
        FolderLock(tmp_path).acquire()
    assert other.read_text() == "kept"


def test_a_lock_that_is_a_pipe_is_told_of(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(DataFolderUnusable):
        FolderLock(tmp_path).acquire()


def test_root_follows_no_link_of_a_folders_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").symlink_to(tmp_path.parent)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if tmp_path.stat().st_uid == 0:
        os.chown(tmp_path, 4_242, -1)
    with pytest.raises(DataFolderUnusable, match="`logs` is a link"):
        FolderLock(tmp_path).acquire()


def test_logs_are_files_and_no_links_or_pipes(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"kept" * 100)
    log, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    log.symlink_to(other)
    with pytest.raises(LogUnusable):
        opened(log)
    assert not shorten(log, max_bytes=1)
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(LogUnusable):
        opened(log)
    log.unlink()
    with opened(log) as file:
        file.write(b"line\n")
    copy.symlink_to(other)
    assert shorten(log, max_bytes=1)
    assert not copy.is_symlink()
    assert copy.read_bytes() == b"line\n"
    assert other.read_bytes() == b"kept" * 100


@pytest.mark.parametrize("text", [b"99999999", b"-5", b"0", b"x", b"\xff\xff", b"9" * 5_000])
def test_a_remembered_port_that_is_none_is_chosen_anew(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "api.port"
    file.write_bytes(text)
    port = remembered_port(file)
    assert 0 < port < 65_536
    assert file.read_text() == f"{port}\n"
