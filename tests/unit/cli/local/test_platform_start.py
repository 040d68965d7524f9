"""What a platform says of itself before anything of it runs: its addresses, and sections unread."""

import socket
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hocket.admin.__main__ import ApiPortTaken, _listen
from hocket.cli.local.platform import Platform, _free_port
from hocket.schemas.errors import HocketError
from support.shared.ipv6 import needs_ipv6


@pytest.mark.parametrize(
    ("listens_on", "reached_at"),
    [("::1", "[::1]"), ("127.0.0.1", "127.0.0.1"), ("::", "127.0.0.1"), ("box.lan", "box.lan")],
)
def test_its_addresses_are_urls_also_on_ipv6(
    tmp_path: Path, listens_on: str, reached_at: str
) -> None:
    platform = Platform(tmp_path, api_host=listens_on, api_port=8080, gateway_port=8081)
    assert platform.api_url == f"http://{reached_at}:8080"
    assert platform.gateway_url == f"http://{reached_at}:8081/v1"


@needs_ipv6
def test_a_port_that_is_taken_on_its_address_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "api.port"
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        wanted = taken.getsockname()[1]
        with capture_logs() as told:
            found = _free_port(file, wanted, "::1")
    assert found == int(file.read_text()) != wanted
    assert [(one["event"], one["taken"]) for one in told] == [("api_port_taken", wanted)]


@needs_ipv6
def test_an_address_that_cannot_be_listened_on_is_told_as_clients_write_it() -> None:
    with pytest.raises(ApiPortTaken, match=r"cannot listen on \[2001:db8::1\]:8080: "):
        _listen("2001:db8::1", 8080)


async def test_a_misspelled_section_of_its_configuration_is_told(tmp_path: Path) -> None:
    """Without a word, the built-in model would answer in place of those of the file."""
    file = tmp_path / "hocket.yaml"
    file.write_text("model: {}\nblobs: {store: postgres}\n")
    platform = Platform(
        tmp_path / "d",
        nats_url="nats://127.0.0.1:1",
        database_url="postgresql://hocket@127.0.0.1:1/hocket",
        config=file,
    )
    with capture_logs() as told, pytest.raises(HocketError, match="Postgres did not answer"):
        async with platform:
            pass
    warnings = [one for one in told if one["event"] == "config_section_unread"]
    assert [(one["section"], one["cure"]) for one in warnings] == [("model", "Is `models` meant?")]
