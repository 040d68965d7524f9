"""The capability key of a data folder is made once, and whole."""

import os
from pathlib import Path

import pytest

from hocket.cli.local.capability_key import FILE, kept_key
from hocket.schemas.capabilities import keys_of


def test_a_folder_keeps_its_key_for_its_user_alone(tmp_path: Path) -> None:
    key = kept_key(tmp_path)
    assert kept_key(tmp_path) == key
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert keys_of(key) == [key.encode()]


def test_a_start_that_was_killed_while_it_made_the_key_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        with pytest.raises(OSError, match="No space"):
            kept_key(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(kept_key(tmp_path)) == 64


def test_an_empty_file_is_no_key(tmp_path: Path) -> None:
    (tmp_path / FILE).touch(mode=0o600)
    key = kept_key(tmp_path)
    assert len(key) == 64
    assert kept_key(tmp_path) == key
