"""Requests without a key: how many are answered at once, and how long their bodies may take."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from hocket.admin.requests import strangers
from hocket.admin.requests.body_limit import BodyLimit
from hocket.admin.requests.identity import TENANT
from hocket.admin.requests.request_limit import RequestLimit
from hocket.admin.requests.strangers import (
    MAX_BODY_BYTES,
    MAX_OF_ADDRESS,
    MAX_STRANGERS,
    BodyTooSlow,
    StrangersPlaces,
    address_of,
    hurried,
)
from hocket.schemas.errors import PayloadTooLarge


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("::ffff:192.0.2.1", 5), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::%eth0", 5), "2001:db8:1:2::/64"),
        (None, ""),
    ],
)
def test_a_network_of_ipv6_counts_as_one_address(client: Any, address: str) -> None:
    assert address_of({"client": client}) == address


def filled(places: StrangersPlaces, addresses: range) -> list[int]:
    """Let each address take all that it gets; return how many those are."""
    got = []
    for number in addresses:
        name, count = f"192.0.2.{number}", 0
        while places.refused(name) is None:
            places.enter(name)
            count += 1
        got.append(count)
    return got


def test_an_address_gets_the_fewer_places_the_fewer_are_free() -> None:
    places = StrangersPlaces()
    got = filled(places, range(50))
    assert got[0] == MAX_OF_ADDRESS
    assert got == sorted(got, reverse=True)
    assert min(got) == 1, "fifty addresses that take all they can leave places to others"
    while places.refused("198.51.100.1") is None:
        places.enter("198.51.100.1")
    refused = places.refused("192.0.2.0")
    assert refused is not None
    assert refused.code == "address_api_full"


def test_places_that_are_left_are_free_again_and_addresses_are_forgotten() -> None:
    places = StrangersPlaces()
    for number, count in enumerate(filled(places, range(200))):
        for _ in range(count):
            places.leave(f"192.0.2.{number}")
    assert not places._held
    assert filled(places, range(1)) == [MAX_OF_ADDRESS]


@asynccontextmanager
async def open_requests(limit: Callable[..., Any], scope: Scope, count: int) -> Any:
    """Keep requests open while the block lasts."""
    asked = [asyncio.create_task(status_of(limit, scope)) for _ in range(count)]
    await asyncio.sleep(0)
    try:
        yield
    finally:
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def status_of(limit: Callable[..., Any], scope: Scope, body: bytes = b"") -> int:
    """Return the status of the answer to a request, 0 without one."""
    found: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    await limit({"type": "http", "path": "/console/sign-in", "headers": [], **scope}, receive, send)
    return found[0] if found else 0


async def waits(scope: Scope, _receive: Receive, _send: Send) -> None:
    if "waits" in scope:
        await asyncio.Event().wait()


def at(number: int, **more: Any) -> Scope:
    return {"client": (f"192.0.2.{number}", 1), **more}


async def test_strangers_and_tenants_take_no_places_from_each_other() -> None:
    limit = RequestLimit(waits, limit=2, uncounted=("/assets/",))
    async with AsyncExitStack() as stack:
        for number in range(MAX_STRANGERS):
            await stack.enter_async_context(open_requests(limit, at(number % 250, waits=1), 1))
        full = await status_of(limit, at(1))
        asset = await status_of(limit, at(1, path="/assets/a.js"))
        assert (full, asset) == (429, 0)
        assert await status_of(limit, at(1, **{TENANT: "acme"})) == 0
    async with AsyncExitStack() as stack:
        for name in "ab":
            held = at(1, waits=1, **{TENANT: name})
            await stack.enter_async_context(open_requests(limit, held, 1))
        assert await status_of(limit, at(1, **{TENANT: "c"})) == 503
        assert await status_of(limit, at(1)) == 0


async def test_bodies_without_a_key_are_small_and_need_no_room_of_tenants() -> None:
    async def reads(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()

    limit = BodyLimit(reads, limit_bytes=1_048_576, together_bytes=0)
    assert await status_of(limit, {}, b"x" * MAX_BODY_BYTES) == 0
    with pytest.raises(PayloadTooLarge):
        await status_of(limit, {}, b"x" * (MAX_BODY_BYTES + 1))
    told = [(b"content-length", str(MAX_BODY_BYTES + 1).encode())]
    assert await status_of(limit, {"headers": told}) == 413


async def test_a_body_has_so_long_in_all_and_what_follows_it_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strangers, "BODY_S", 0.2)

    async def trickles() -> Message:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def read_on(receive: Receive) -> None:
        while (await receive())["more_body"]:
            pass

    with pytest.raises(BodyTooSlow):
        await asyncio.wait_for(read_on(hurried(trickles)), 10)

    messages = [{"type": "http.request", "body": b"x", "more_body": False}]

    async def whole() -> Message:
        if messages:
            return messages.pop()
        await asyncio.sleep(0.4)
        return {"type": "http.disconnect"}

    receive = hurried(whole)
    assert (await receive())["body"] == b"x"
    assert (await receive())["type"] == "http.disconnect"
