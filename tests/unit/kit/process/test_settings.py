"""Settings of a process are refused all at once, each by its variable."""

import pytest

from hocket.kit.process.settings import read
from hocket.schemas.errors import InvalidInput


def test_every_wrong_variable_is_named_and_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_PARTITIONS", "0")
    monkeypatch.setenv("HOCKET_LOG_LEVEL", "s3cr3t")
    with pytest.raises(InvalidInput) as caught:
        read(api_port=-1)
    text = str(caught.value)
    for name in ("HOCKET_PARTITIONS", "HOCKET_LOG_LEVEL", "HOCKET_API_PORT"):
        assert f"`{name}`" in text
    assert "s3cr3t" not in text


@pytest.mark.parametrize("root", ["/console", "/v1", "/v1/hocket", "/sign-in", "/openapi.json"])
def test_a_root_that_would_hide_the_services_own_paths_is_refused(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_ROOT_PATH", root)
    with pytest.raises(InvalidInput, match=r"`HOCKET_ROOT_PATH`.*/console.*write /hocket"):
        read()


@pytest.mark.parametrize("root", ["", "/hocket", "/consoles", "/tools/console"])
def test_any_other_root_is_taken(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_ROOT_PATH", root)
    assert read().root_path == root
