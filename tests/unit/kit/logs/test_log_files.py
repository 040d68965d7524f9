"""Logs stay short while somebody writes to them."""

import shutil
from pathlib import Path

import pytest

from hocket.kit.logs.log_files import shorten


def test_a_long_log_is_begun_anew_under_its_writer_and_its_copy_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"x" * 100)
        assert not shorten(path, max_bytes=100)
        writer.write(b"y")
        assert shorten(path, max_bytes=100)
        writer.write(b"anew\n")
    assert path.read_bytes() == b"anew\n"
    assert path.with_suffix(".log.1").read_bytes() == b"x" * 100 + b"y"


def test_without_room_for_a_copy_it_is_cut_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    path = tmp_path / "nats.log"
    path.write_bytes(b"x" * 101)
    assert shorten(path, max_bytes=100)
    assert path.read_bytes() == b""
    assert not path.with_suffix(".log.1").exists()


def test_a_log_that_is_not_there_is_none_of_its_business(tmp_path: Path) -> None:
    assert not shorten(tmp_path / "none.log", max_bytes=1)
