"""Settings of a process are refused all at once, each by its variable."""

import pytest

from hocket.kit.process.settings import Settings, read
from hocket.schemas.checks.text_forms import is_worded
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


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("HOCKET_ROOT_PATH", "a b", "it is not a path. Start it with `/`, as in `/hocket`"),
        ("HOCKET_API_PORT", "web", "it is not a whole number. Use a whole number."),
        ("HOCKET_PARTITIONS", "0", "it is out of bounds. Use 1 or more."),
        ("HOCKET_LOG_LEVEL", "loud", "Use `debug`, `info`, `warning` or `error`."),
    ],
)
def test_a_wrong_variable_is_told_what_it_may_be(
    variable: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInput) as caught:
        read()
    assert f"`{variable}` is not valid: " in str(caught.value)
    assert told in str(caught.value)
    assert str(caught.value).endswith(" See docs/reference/settings.md.")


def test_no_regular_expression_of_a_setting_is_shown() -> None:
    schema = Settings.model_json_schema()["properties"].values()
    parts = [part for one in schema for part in (one, *one.get("anyOf", ()))]
    patterns = [part["pattern"] for part in parts if "pattern" in part]
    assert len(patterns) == 2
    assert all(map(is_worded, patterns))


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
