"""What an identity provider says is its address, which a terminal shows."""

import socket
from typing import Any

import pytest

from hocket.cli.remote.identity_provider import ProviderClient, ProviderSignInFailed
from hocket.cli.remote.provider_sign_in import sign_in
from support.shared.scripted_api import Answer, as_json, scripted_api


@pytest.mark.parametrize("path", ["\x1b[2J\x1b]0;me\x07", "\u202egnp", "a b", "\x9b2J", "a\u2028b"])
def test_an_address_that_would_steer_the_terminal_is_not_shown(path: str) -> None:
    def metadata(_asked: str, _body: Any) -> Answer:
        told = {"issuer": api.url, "token_endpoint": f"{api.url}/token"}
        return as_json(200, told | {"authorization_endpoint": f"{api.url}/{path}"})

    shown: list[str] = []
    with (
        scripted_api(metadata) as api,
        pytest.raises(ProviderSignInFailed, match="address is not printable"),
    ):
        sign_in(ProviderClient(api.url, "cli"), 0, shown.append)
    assert shown == []


def test_a_port_that_is_taken_is_named() -> None:
    def metadata(_asked: str, _body: Any) -> Answer:
        told = {"issuer": api.url, "token_endpoint": f"{api.url}/token"}
        return as_json(200, told | {"authorization_endpoint": f"{api.url}/authorize"})

    with socket.create_server(("127.0.0.1", 0)) as taken, scripted_api(metadata) as api:
        port = taken.getsockname()[1]
        with pytest.raises(ProviderSignInFailed, match=f"port {port} .* name another `--port`"):
            sign_in(ProviderClient(api.url, "cli"), port, print)
