"""Names are resolved beside each other."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from hocket.kit import name_lookups
from hocket.kit.name_lookups import NameResolver
from hocket.kit.public_addresses import PublicResolver

PATIENCE_S = 30.0
FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Names that begin with `slow` are resolved only once this is set."""
    answers = threading.Event()

    def looked_up(host: str, *_others: Any) -> list[Any]:
        if host.startswith("slow"):
            answers.wait()
        return FOUND

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return answers


async def test_names_whose_servers_do_not_answer_keep_no_other_name_waiting(
    answering: threading.Event,
) -> None:
    resolver = PublicResolver(PermissionError)
    slow = [asyncio.create_task(resolver.resolve(f"slow{i}.example", 443)) for i in range(100)]
    try:
        await asyncio.sleep(0)  # all of them have begun
        async with asyncio.timeout(PATIENCE_S):
            (found,) = await resolver.resolve("quick.example", 443)
    finally:
        answering.set()
    assert (found["host"], found["hostname"], found["port"]) == (
        "93.184.216.34",
        "quick.example",
        443,
    )
    assert all(not task.done() for task in slow)
    await asyncio.gather(*slow)


async def test_more_names_than_the_limit_are_refused_until_others_are_resolved(
    answering: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_lookups, "MAX_LOOKUPS", 1)
    resolver = NameResolver()
    slow = asyncio.create_task(resolver.resolve("slow.example"))
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="other names"):
        await resolver.resolve("quick.example")
    answering.set()
    await slow
    assert await resolver.resolve("quick.example")


async def test_a_name_without_an_address_is_an_error_and_holds_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_arguments: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(name_lookups, "MAX_LOOKUPS", 1)
    resolver = NameResolver()
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await resolver.resolve("nowhere.example")


async def test_an_address_of_one_link_keeps_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    local = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 443, 0, 3))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments: [local])
    (found,) = await NameResolver().resolve("box.internal", 443)
    assert found["host"] == "fe80::1%3"
