"""A compressed body is refused by the name of its encoding, and not read."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi import APIRouter

from hocket.admin.requests.permissions import public
from hocket.admin.requests.request_rules import RequestRules, operations_of

PLACE = "/v1/things"


BODY = {b"content-type": b"application/json", b"content-length": b"20"}


async def answer_to(
    method: str, encoding: str | None, about: Mapping[bytes, bytes] = BODY
) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of the answer, 200 and {} if the request passes; `about` are the
    headers of its body."""
    router = APIRouter()

    @router.api_route(PLACE, methods=["GET", "POST", "DELETE"])
    @public
    async def things() -> None: ...

    passed: list[Any] = []
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        passed.append(scope)

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body is not needed")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = list(about.items())
    if encoding is not None:
        headers.append((b"content-encoding", encoding.encode()))
    scope = {
        "type": "http",
        "method": method,
        "path": PLACE,
        "raw_path": PLACE.encode(),
        "query_string": b"",
        "headers": headers,
    }
    rules = RequestRules(app, operations=operations_of(router.routes))
    await rules(scope, receive, send)
    if passed:
        return 200, {}
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip", "Zstd"])
async def test_an_encoded_body_is_told_to_leave_its_encoding_out(
    method: str, encoding: str
) -> None:
    status, body = await answer_to(method, encoding)
    assert (status, body["code"], body["field"]) == (415, "body_encoded", "Content-Encoding")
    assert f"`Content-Encoding: {encoding}`" in body["detail"]


@pytest.mark.parametrize(
    ("method", "encoding"),
    [("POST", None), ("POST", "identity"), ("POST", ""), ("DELETE", None), ("GET", "gzip")],
)
async def test_a_body_that_is_what_it_says_passes(method: str, encoding: str | None) -> None:
    assert await answer_to(method, encoding) == (200, {})


@pytest.mark.parametrize("about", [{}, {b"content-length": b"0"}])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_without_a_body_nothing_is_encoded(method: str, about: Mapping[bytes, bytes]) -> None:
    assert await answer_to(method, "gzip", about) == (200, {})


async def test_a_body_of_unknown_length_is_a_body() -> None:
    about = {b"content-type": b"application/json", b"transfer-encoding": b"chunked"}
    status, _ = await answer_to("POST", "gzip", about)
    assert status == 415
