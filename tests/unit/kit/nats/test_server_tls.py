"""What the query of a `NATS_URL` says about certificates."""

import ssl
from pathlib import Path

import pytest

from hocket.kit.nats.server_tls import certificate_files, tls_of
from hocket.kit.nats.server_urls import server_urls
from hocket.schemas.errors import InvalidInput


def test_certificates_stand_behind_the_servers() -> None:
    text = "tls://u:p@a:4222,b:4222?ca=/tls/ca.crt&cert=/tls/c.crt&key=/tls/c.key"
    assert server_urls(text) == ["tls://u:p@a:4222", "tls://b:4222"]
    files = {"ca": "/tls/ca.crt", "cert": "/tls/c.crt", "key": "/tls/c.key"}
    assert certificate_files(text) == files


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("crt=/a", "`crt=/a`"),
        ("ca=", "`ca=`"),
        ("key=/a", "without a certificate"),
        ("ca=/nowhere/ca.crt", "No such file"),
    ],
)
def test_what_cannot_be_used_is_named(query: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"NATS_URL.*{reason}"):
        tls_of(f"tls://a:4222?{query}")


def test_two_files_for_one_thing_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two files as `ca`"):
        certificate_files("tls://a:4222?ca=/one,b:4222?ca=/two")


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(InvalidInput, match=r"ca .*ca\.crt"):
        tls_of(f"tls://a:4222?ca={tmp_path}/ca.crt")


def test_tls_is_spoken_where_it_is_asked_for() -> None:
    assert tls_of("nats://a:4222") is None
    context = tls_of("tls://a:4222")
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
