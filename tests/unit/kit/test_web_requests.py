"""Which requests a web page can make through a browser, and which are let in."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from hocket.kit.access.nats_accounts import USERS
from hocket.kit.embedded.nats_config import config_text
from hocket.kit.process.settings import Settings
from hocket.kit.web_requests import (
    HostMissing,
    HostNotServed,
    MediaTypeUnsupported,
    OriginRefused,
    WebRules,
    check_media_type,
    open_listener,
)

RULES = WebRules.of(
    "hocket.internal", ["Console.Example.com.", "*.svc.local"], ["https://console.example.com/"]
)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:8080",
        "10.1.2.3",
        "[::1]:8080",
        "[::1]",
        "hocket.internal:80",
        "console.example.com",
        "console.example.com.:443",
        "admin.prod.svc.local:8080",
    ],
)
def test_a_name_of_the_server_is_let_in(host: str) -> None:
    RULES.check("POST", host=[host])


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "svc.local", "xlocalhost"],
)
def test_another_name_is_not_served(host: str) -> None:
    with pytest.raises(HostNotServed, match="HOCKET_ALLOWED_HOSTS"):
        RULES.check("GET", host=[host])


@pytest.mark.parametrize(
    "hosts", [[], ["localhost", "localhost"], [""], ["localhost:x"], ["[::1"], ["a" * 300], ["é"]]
)
def test_a_request_names_one_host(hosts: list[str]) -> None:
    with pytest.raises((HostMissing, HostNotServed)):
        RULES.check("GET", host=hosts)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://evil.example",
        "http://localhost",
        "http://localhost:3000",
        "file://localhost:8080",
        "",
    ],
)
def test_a_page_of_another_origin_is_refused(method: str, origin: str) -> None:
    with pytest.raises(OriginRefused, match="HOCKET_ALLOWED_ORIGINS"):
        RULES.check(method, host=["localhost:8080"], origin=[origin])


@pytest.mark.parametrize(
    "origin", ["http://localhost:8080", "https://LOCALHOST:8080", "https://console.example.com"]
)
def test_the_own_origin_and_an_allowed_one_are_let_in(origin: str) -> None:
    RULES.check("POST", host=["localhost:8080"], origin=[origin])


def test_a_browser_says_that_another_site_asks() -> None:
    def ask(method: str, site: str, mode: str, dest: str) -> None:
        RULES.check(method, host=["localhost"], fetch_site=site, fetch_mode=mode, fetch_dest=dest)

    for method, mode, dest in (
        ("GET", "no-cors", "image"),
        ("GET", "navigate", "iframe"),
        ("POST", "navigate", "document"),
    ):
        with pytest.raises(OriginRefused):
            ask(method, "cross-site", mode, dest)
    ask("GET", "cross-site", "navigate", "document")  # somebody followed a link
    ask("POST", "same-origin", "cors", "empty")


@pytest.mark.parametrize(
    "given",
    [
        ["application/json"],
        ["Application/JSON; charset=UTF-8"],
        ['application/json;charset="utf8"'],
    ],
)
def test_json_is_accepted(given: list[str]) -> None:
    check_media_type(given)


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        ["text/plain"],
        ["application/x-www-form-urlencoded"],
        ["multipart/form-data; boundary=x"],
        ["application/json; charset=utf-16"],
        ["text/plain; application/json"],
        ["application/json", "text/plain"],
        ["application/jsonp"],
    ],
)
def test_what_a_form_can_send_is_not(given: list[str]) -> None:
    with pytest.raises(MediaTypeUnsupported, match="application/json"):
        check_media_type(given)


def test_an_empty_body_may_be_of_any_type_but_a_forms() -> None:
    check_media_type([], empty=True)
    check_media_type(["application/octet-stream"], empty=True)
    with pytest.raises(MediaTypeUnsupported):
        check_media_type(["text/plain;charset=UTF-8"], empty=True)


def test_hosts_and_origins_are_configured_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_ALLOWED_HOSTS", "a.example, *.b.example,")
    monkeypatch.setenv("HOCKET_ALLOWED_ORIGINS", "https://a.example")

    settings = Settings()

    assert settings.allowed_hosts == ("a.example", "*.b.example")
    assert settings.allowed_origins == ("https://a.example",)


def test_a_request_is_let_in_however_its_host_and_origin_are_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOCKET_ALLOWED_HOSTS", "Hocket.example.com:8080")
    monkeypatch.setenv("HOCKET_ALLOWED_ORIGINS", "HTTPS://a.example:443, null")
    settings = Settings()
    rules = WebRules.of("0.0.0.0", settings.allowed_hosts, settings.allowed_origins)
    for origin in ("https://a.example", "null"):
        for host in ("hocket.example.com", "hocket.example.com:9000"):
            rules.check("POST", host=[host], origin=[origin])
    with pytest.raises(OriginRefused):
        rules.check("POST", host=["hocket.example.com"], origin=["http://a.example"])


def test_the_embedded_nats_has_no_door_for_browsers(tmp_path: Path) -> None:
    config = config_text(
        tmp_path, server_name="n", port=4222, passwords=dict.fromkeys(USERS, "p"), issuer="A"
    )

    assert "websocket" not in config
    assert "http" not in config


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_who_listens_everywhere_is_reached_by_both_protocols(host: str) -> None:
    with closing(open_listener("::", 0, 8)) as listener:
        port = listener.getsockname()[1]
        socket.create_connection((host, port), timeout=10).close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_who_listens_at_one_address_is_reached_by_its_protocol_only() -> None:
    with closing(open_listener("::1", 0, 8)) as listener:
        assert listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
