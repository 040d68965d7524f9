"""The address of a request is that of its connection, or what a trusted proxy names, if it is one."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from hocket.admin.requests.forwarded import TRUSTED, Forwarded

PEER = ("127.0.0.1", 4_711)


async def seen(told: list[str], *, peer: tuple[str, int] = PEER, proto: str = "") -> Scope:
    found: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        found.append(scope)

    async def nothing() -> Message:
        return {}

    async def ignored(_message: Message) -> None:
        return

    headers = [(b"host", b"x"), *((b"x-forwarded-for", one.encode("latin-1")) for one in told)]
    if proto:
        headers.append((b"x-forwarded-proto", proto.encode()))
    scope: Scope = {"type": "http", "scheme": "http", "client": peer, "headers": headers}
    await Forwarded(app)(scope, nothing, ignored)
    return found[0]


@pytest.mark.parametrize(
    ("told", "address"),
    [
        (["203.0.113.7"], "203.0.113.7"),
        (["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
        (["203.0.113.7", "127.0.0.1"], "203.0.113.7"),
        (["203.0.113.7:5000"], "203.0.113.7"),
        (["2001:db8::1"], "2001:db8::1"),
        (["[2001:db8::1]:5000"], "2001:db8::1"),
    ],
)
async def test_a_proxy_on_this_machine_names_the_clients_address(
    told: list[str], address: str
) -> None:
    assert (await seen(told))["client"][0] == address


@pytest.mark.parametrize(
    "told",
    [
        "x" * 60_000,
        "somebody",
        "\x9b31m",
        "203.0.113.7, <b>",
        "",
        "::1%" + "z" * 60_000,
        "1.2.3.4:" + "9" * 999,
    ],
)
async def test_what_is_no_address_is_kept_nowhere(told: str) -> None:
    scope = await seen([told])
    assert tuple(scope["client"]) == PEER
    assert all(name != b"x-forwarded-for" for name, _ in scope["headers"])


async def test_others_are_believed_only_where_a_setting_names_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = ("10.0.0.9", 1)
    scope = await seen(["203.0.113.7"], peer=peer, proto="https")
    assert (scope["client"], scope["scheme"]) == (peer, "http")
    monkeypatch.setenv(TRUSTED, "10.0.0.0/8")
    scope = await seen(["203.0.113.7"], peer=peer, proto="https")
    assert (scope["client"][0], scope["scheme"]) == ("203.0.113.7", "https")
