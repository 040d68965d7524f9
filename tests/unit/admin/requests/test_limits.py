"""Bodies and requests beyond their bounds are refused, whatever they announce."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from hocket.admin.requests.body_limit import BodyLimit, TenantBodiesFull
from hocket.admin.requests.identity import TENANT
from hocket.admin.requests.request_limit import RequestLimit, stop_counting
from hocket.schemas.errors import PayloadTooLarge

LIMIT_BYTES = 10
BOUND_S = 10.0


async def status_of(app: BodyLimit | RequestLimit, scope: Scope, parts: Sequence[bytes]) -> int:
    """Return the status of the answer to a request whose body comes in parts, 0 without one."""
    left = list(parts)
    found: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    await app({"type": "http", "path": "/v1/runs", "headers": [], **scope}, receive, send)
    return found[0] if found else 0


async def reads(_scope: Scope, receive: Receive, _send: Send) -> None:
    while (await receive())["more_body"]:
        pass


@pytest.mark.parametrize(
    "announced", [[], [(b"content-length", b"1")], [(b"content-length", b"-1")]]
)
async def test_a_body_longer_than_it_says_is_read_no_further_than_the_limit(
    announced: list[tuple[bytes, bytes]],
) -> None:
    limit = BodyLimit(reads, limit_bytes=LIMIT_BYTES)
    half, rest = b"x" * (LIMIT_BYTES // 2), b"x" * (LIMIT_BYTES // 2 + 1)
    assert await status_of(limit, {"headers": announced}, [half, half]) == 0
    with pytest.raises(PayloadTooLarge):
        await status_of(limit, {"headers": announced}, [half, rest, half])


@pytest.mark.parametrize(("size", "status"), [(LIMIT_BYTES, 0), (LIMIT_BYTES + 1, 413)])
async def test_a_body_that_says_that_it_is_too_long_is_not_read(size: int, status: int) -> None:
    limit = BodyLimit(reads, limit_bytes=LIMIT_BYTES)
    headers = [(b"content-length", str(size).encode())]
    assert await status_of(limit, {"headers": headers}, [b""]) == status


async def test_bodies_of_one_tenant_leave_room_for_those_of_others() -> None:
    going_on = asyncio.Event()

    async def app(scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()
        if scope[TENANT] == "a":
            await going_on.wait()

    limit = BodyLimit(app, limit_bytes=LIMIT_BYTES, together_bytes=4 * LIMIT_BYTES)
    body = b"x" * LIMIT_BYTES
    held = [asyncio.create_task(status_of(limit, {TENANT: "a"}, [body])) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TenantBodiesFull):
        await status_of(limit, {TENANT: "a"}, [body])
    assert await status_of(limit, {TENANT: "b"}, [body]) == 0
    going_on.set()
    assert await asyncio.gather(*held) == [0, 0]
    assert await status_of(limit, {TENANT: "a"}, [body]) == 0


async def test_a_request_that_stopped_counting_leaves_room_for_one_other_and_no_more() -> None:
    going_on = asyncio.Event()

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        if scope["path"] == "/stream":
            stop_counting(scope)
            stop_counting(scope)
        else:
            await going_on.wait()

    limit = RequestLimit(app, limit=2)
    for _ in range(3):
        await status_of(limit, {"path": "/stream", TENANT: "a"}, [])
    waiting = [asyncio.create_task(status_of(limit, {TENANT: name}, [])) for name in "ab"]
    await asyncio.sleep(0)
    one_more = status_of(limit, {TENANT: "c"}, [])
    assert await asyncio.wait_for(one_more, BOUND_S) == 503
    going_on.set()
    assert await asyncio.gather(*waiting) == [0, 0]
    assert await status_of(limit, {TENANT: "c"}, []) == 0


@pytest.mark.parametrize(
    ("path", "accept", "shown"),
    [
        ("/console/runs", b"text/html,*/*", b"text/html"),
        ("/console/runs", b"*/*", b"application/problem+json"),
        ("/v1/runs", b"text/html,*/*", b"application/problem+json"),
    ],
)
async def test_people_are_shown_a_page_when_there_is_no_room(
    path: str, accept: bytes, shown: bytes
) -> None:
    headers = [(b"accept", accept), (b"content-length", str(LIMIT_BYTES + 1).encode())]
    for limit in (RequestLimit(reads, limit=0), BodyLimit(reads, limit_bytes=LIMIT_BYTES)):
        found: list[Message] = []

        async def send(message: Message, found: list[Message] = found) -> None:
            found.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, TENANT: "a"}
        await limit({**scope, "query_string": b""}, receive_nothing, send)
        assert dict(found[0]["headers"])[b"content-type"].startswith(shown)


async def receive_nothing() -> Message:
    raise AssertionError("a refused request was read")
