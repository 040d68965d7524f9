"""Scripts and timelines go compressed to browsers that take that, and plain to others."""

import gzip

import pytest
from starlette.requests import Request

from hocket.admin.console.assets import assets
from hocket.admin.console.compression import compressed_response

LONG = b'{"key": "read[1]"}' * 500


def asking(encodings: str | None) -> Request:
    headers = [] if encodings is None else [(b"accept-encoding", encodings.encode())]
    return Request({"type": "http", "headers": headers})


def test_a_browser_that_takes_gzip_gets_less() -> None:
    found = compressed_response(asking("gzip, deflate, br"), LONG, {}, media_type="text/css")

    assert gzip.decompress(found.body) == LONG
    assert len(found.body) < len(LONG) / 10
    assert found.headers["content-encoding"] == "gzip"
    assert found.headers["content-length"] == str(len(found.body))
    assert found.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    ("encodings", "body"), [(None, LONG), ("identity", LONG), ("gzip", b"short")]
)
def test_others_and_what_is_short_are_answered_plainly(encodings: str | None, body: bytes) -> None:
    found = compressed_response(asking(encodings), body, {}, media_type="text/css")

    assert found.body == body
    assert "content-encoding" not in found.headers


def test_each_asset_is_compressed_once_and_is_the_same_file() -> None:
    for asset in assets().values():
        assert gzip.decompress(asset.compressed) == asset.body
