"""Settings of a process are refused all at once, each by its variable."""

from pathlib import Path

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


@pytest.mark.parametrize(
    "entry", ["https://hocket.example.com", "hocket.example.com/v1", "10.0.0.0/8"]
)
def test_a_host_with_a_scheme_or_a_path_is_refused(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_ALLOWED_HOSTS", f"admin, {entry}")
    with pytest.raises(
        InvalidInput,
        match=r"`HOCKET_ALLOWED_HOSTS`.*entry 2 has a scheme or a path.*; write hocket",
    ):
        read()


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("admin", "admin"),
        ("*.svc.cluster.local", "*.svc.cluster.local"),
        ("*", "*"),
        ("A_b.example.", "a_b.example"),
        ("hocket.example.com:8080", "hocket.example.com"),
        ("*.example.com:443", "*.example.com"),
        ("::1", "::1"),
        ("FE80::1", "fe80::1"),
        ("[::1]", "::1"),
        ("[::1]:8080", "::1"),
        ("b\u00fccher.example", "b\u00fccher.example"),
    ],
)
def test_a_host_is_kept_as_requests_are_compared_with_it(
    entry: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_ALLOWED_HOSTS", f"{entry}, other")
    assert read().allowed_hosts == (name, "other")


@pytest.mark.parametrize(
    "entry",
    [
        "console.example.com",
        "https://console.example.com/path",
        "https://console.example.com?a=b",
        "https://*.example.com",
        "://console.example.com",
        "*",
    ],
)
def test_what_is_no_origin_is_refused(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_ALLOWED_ORIGINS", f"https://a.example, {entry}")
    with pytest.raises(
        InvalidInput, match=r"`HOCKET_ALLOWED_ORIGINS`.*entry 2 is not the origin.*write https://"
    ):
        read()


@pytest.mark.parametrize(
    ("entry", "origin"),
    [
        ("https://console.example.com", "https://console.example.com"),
        ("HTTPS://Console.example.com/", "https://console.example.com"),
        ("https://console.example.com:443", "https://console.example.com"),
        ("http://localhost:80/", "http://localhost"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://console.example.com:443", "http://console.example.com:443"),
        ("moz-extension://0a1b2c", "moz-extension://0a1b2c"),
        ("file://", "file://"),
        ("null", "null"),
        ("NULL", "null"),
    ],
)
def test_an_origin_is_kept_as_browsers_send_it(
    entry: str, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_ALLOWED_ORIGINS", entry)
    assert read().allowed_origins == (origin,)


@pytest.mark.parametrize("variable", ["HOCKET_DATA_DIR", "HOCKET_CONFIG"])
def test_a_path_may_begin_at_home(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the commands, which would otherwise use another folder than the processes."""
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv(variable, "~/hk")
    settings = read()
    found = settings.data_dir if variable == "HOCKET_DATA_DIR" else settings.config
    assert found == Path("/home/ada/hk")

    monkeypatch.setenv(variable, "~nobody-here/hk")
    with pytest.raises(InvalidInput, match=f"`{variable}`.*there is no such home folder"):
        read()


@pytest.mark.parametrize("entry", ["http://127.0.0.1:9", "10.0.0.0/8", "*.internal"])
def test_a_host_of_webhooks_that_would_match_nothing_is_refused(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_WEBHOOK_PRIVATE_HOSTS", f"localhost, {entry}")
    told = "entry 2 has a scheme, a path or a .*, and is no host; write hooks.internal"
    with pytest.raises(InvalidInput, match=f"`HOCKET_WEBHOOK_PRIVATE_HOSTS`.*{told}"):
        read()


@pytest.mark.parametrize("entry", ["localhost:9000", "[::1]:9", "10.0.0.7:80", "Hooks.internal.:0"])
def test_a_host_of_webhooks_is_named_without_a_port(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would allow every other port, too."""
    monkeypatch.setenv("HOCKET_WEBHOOK_PRIVATE_HOSTS", f"localhost, {entry}")
    with pytest.raises(
        InvalidInput, match=r"entry 2 has a port.*\. Write the host without a port\."
    ):
        read()


@pytest.mark.parametrize(
    "entry", [":9000", "user@host", "user@host:9", "my host", "[::1", "::1]", "[x]", "a:b:c", ".", "a:",
              "h:x", "h:99999", "h?x", "h#x"],
)  # fmt: skip
def test_what_is_no_host_of_webhooks_is_refused(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_WEBHOOK_PRIVATE_HOSTS", f"localhost, {entry}")
    with pytest.raises(InvalidInput, match=r"entry 2 is no host; write hooks\.internal"):
        read()


def test_hosts_of_webhooks_are_kept_as_urls_are_compared_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = "localhost, Hooks.internal, a.svc.cluster.local., 10.0.0.7, ::1, [FE80::1], 0:0::2"
    monkeypatch.setenv("HOCKET_WEBHOOK_PRIVATE_HOSTS", entries)
    hosts = ("localhost", "hooks.internal", "a.svc.cluster.local", "10.0.0.7")
    assert read().webhook_private_hosts == (*hosts, "::1", "fe80::1", "0:0::2")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ('{"acme": {"runs": true}}', "it is not a number"),
        ('{"acme": {"runs": 0}}', "it is out of bounds"),
        ('{"acme corp": {"runs": 3}}', "it is no name of a tenant"),
        ('{"*": {"runs": 3}}', "it is no name of a tenant"),
    ],
)
def test_a_period_that_nobody_means_is_refused(
    value: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_KEEP_BY_TENANT", value)
    with pytest.raises(InvalidInput, match=f"HOCKET_KEEP_BY_TENANT.*{told}"):
        read()


@pytest.mark.parametrize("days", ["7", "7.0", '"7"'])
def test_a_period_is_a_number_of_days(days: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_KEEP_BY_TENANT", f'{{"acme": {{"runs": {days}}}}}')
    assert read().keep_by_tenant == {"acme": {"runs": 7}}
