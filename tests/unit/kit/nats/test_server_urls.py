"""`NATS_URL` as clusters write it: several servers, one mistake named, no password shown."""

import pytest

from hocket.kit.nats.server_urls import passwords_of, server_urls, without_passwords
from hocket.schemas.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("nats://a", ["nats://a"]),
        ("nats://a:4222,nats://b:4223", ["nats://a:4222", "nats://b:4223"]),
        (" nats://a , tls://u:p@b:4222, ", ["nats://a", "tls://u:p@b:4222"]),
        ("a:4222,b", ["nats://a:4222", "nats://b"]),
        ("tls://a:4222,b:4222", ["tls://a:4222", "tls://b:4222"]),
        ("wss://a:443,ws://b", ["wss://a:443", "ws://b"]),
        ("nats://[::1]:4222", ["nats://[::1]:4222"]),
        ("nats://token@a", ["nats://token@a"]),
    ],
)
def test_several_servers_are_named_with_commas(text: str, servers: list[str]) -> None:
    assert server_urls(text) == servers


@pytest.mark.parametrize(
    "text",
    [
        "", ",", " , ", "http://u:secret@a", "nats://", "nats://u:secret@", "nats://u:secret@a:x",
        "nats://u:secret@a:70000", "nats://u:secret@a:0", "nats://u:secret@[::1", "nats://a,ws://b",
        "nats://a,nats://u:secret@b:99999", "nats://u:secret@a b", "a:4222://u:secret@b",
        ",".join(f"nats://u:secret@h{i}" for i in range(65)),
    ],
)  # fmt: skip
def test_what_names_no_server_is_refused_by_name_and_without_its_password(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        server_urls(text, field="--nats")
    said = str(caught.value)
    assert "--nats" in said
    assert "secret" not in said


def test_secrets_of_every_server_are_known() -> None:
    text = "nats://u:p%40ss@a:4222,nats://token@b,nats://c"
    assert {"p%40ss", "p@ss", "token"} == set(passwords_of(text))
    assert without_passwords(text) == "nats://a:4222,nats://b,nats://c"
