"""Where a worker looks for the platform of its machine."""

import os
from pathlib import Path

import pytest

from hocket.kit.process.platform_facts import PlatformFacts, default_data_dir, write_facts
from hocket.schemas.errors import InvalidInput
from hocket.worker.connection import NATS_VARIABLES, place_of


def test_it_looks_where_hocket_up_keeps_its_data_if_no_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOCKET_DATA_DIR", "HOCKET_BLOBS_DIR", *NATS_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = default_data_dir()
    assert folder == tmp_path / "hocket"
    facts = PlatformFacts(os.getpid(), "0", str(folder), "nats://a:b@h:1", "", None, {})
    write_facts(folder, facts, blobs=folder / "blobs")
    assert place_of().nats_url == "nats://a:b@h:1"
    assert place_of().blobs == folder / "blobs"


@pytest.mark.parametrize("where", ["elsewhere", None])
def test_large_values_are_where_the_platform_keeps_them_or_in_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    for name in ("HOCKET_BLOBS_DIR", *NATS_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOCKET_DATA_DIR", str(tmp_path))
    folder = None if where is None else tmp_path / where
    facts = PlatformFacts(os.getpid(), "0", str(tmp_path), "nats://a:b@h:1", "", None, {})
    write_facts(tmp_path, facts, blobs=folder)
    assert place_of().blobs == folder
    (tmp_path / "run" / "platform.blobs").unlink()  # as an earlier release has it
    assert place_of().blobs == tmp_path / "blobs"


def test_the_url_of_nats_comes_from_a_file_if_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOCKET_BLOBS_DIR", *NATS_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOCKET_DATA_DIR", str(tmp_path))
    file = tmp_path / "nats.url"
    monkeypatch.setenv("NATS_URL_FILE", str(file))
    with pytest.raises(InvalidInput, match=r"NATS_URL_FILE.*No such file"):
        place_of()
    file.write_text("nats://key:hk_1@h:1\n")
    assert place_of().nats_url == "nats://key:hk_1@h:1"
    assert place_of("nats://given:1").nats_url == "nats://given:1"
    monkeypatch.setenv("NATS_URL", "nats://other:1")
    with pytest.raises(InvalidInput, match="NATS_URL is set as well"):
        place_of()
