"""What the parser makes of NATS' bytes, however they are cut."""

from typing import Any

import pytest
from nats.errors import ProtocolError

from hocket.kit.nats.protocol import RawMessage, Wire, header_of, headers_of

HEAD = b"NATS/1.0\r\nNats-Msg-Id: r1:a:1\r\ntraceparent: 00-1-2-01\r\n\r\n"
BYTES = (
    b"MSG a.b 1 5\r\nhello\r\n"
    b"MSG a.c 1 reply.x 0\r\n\r\n"
    + b"HMSG a.d 1 reply.y %d %d\r\n" % (len(HEAD), len(HEAD) + 6)
    + HEAD
    + b"\r\nMSG \r\n"
    + b"PING\r\nMSG other 2 2\r\nhi\r\nPONG\r\n+OK\r\n"
)
TAKEN = [
    ("a.b", "", b"hello", b""),
    ("a.c", "reply.x", b"", b""),
    ("a.d", "reply.y", b"\r\nMSG ", HEAD),
]


class Client:
    """Stands for nats-py's client: notes what it is given."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def _process_msg(self, *message: Any) -> None:
        self.heard.append(message)

    async def _process_ping(self) -> None:
        self.heard.append("ping")

    async def _process_pong(self) -> None:
        self.heard.append("pong")

    async def _process_err(self, text: str) -> None:
        self.heard.append(text)

    async def _process_info(self, info: Any) -> None:
        self.heard.append(info)


def reading() -> tuple[Wire, Client, list[tuple[str, str, bytes, bytes]]]:
    client = Client()
    wire = Wire(client)
    taken: list[tuple[str, str, bytes, bytes]] = []
    wire.direct[1] = lambda f: taken.append((f.subject, f.reply, f.data, f.head))
    return wire, client, taken


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, len(BYTES)])
async def test_messages_are_read_however_the_bytes_are_cut(size: int) -> None:
    wire, client, taken = reading()
    for at in range(0, len(BYTES), size):
        await wire.parse(BYTES[at : at + size])
    assert taken == TAKEN
    assert client.heard == ["ping", (2, b"other", b"", b"hi", None), "pong"]


async def test_subjects_that_are_no_text_are_handed_over_all_the_same() -> None:
    wire, client, taken = reading()
    await wire.parse(b"MSG a.b 1 \xff\xfe 1\r\nx\r\nMSG a.\xff 1 1\r\ny\r\nMSG a.b 1 1\r\nz\r\n")
    assert [data for _, _, data, _ in taken] == [b"x", b"y", b"z"]
    assert not client.heard


async def test_a_taker_that_raises_does_not_end_the_reading() -> None:
    wire, _client, taken = reading()

    def refuse(frame: RawMessage) -> None:
        raise ValueError(frame.subject)

    wire.direct[2] = refuse
    await wire.parse(b"MSG x 2 1\r\na\r\nMSG a.b 1 1\r\nb\r\n")
    assert [data for _, _, data, _ in taken] == [b"b"]


async def test_errors_and_news_of_the_server_go_to_the_client() -> None:
    wire, client, _ = reading()
    await wire.parse(b"-ERR 'Stale Connection'\r\nINFO {\"ldm\": true}\r\n")
    assert client.heard == ["'stale connection'", {"ldm": True}]


async def test_what_is_left_of_a_connection_that_ended_is_not_read() -> None:
    wire, client, taken = reading()

    async def end(_text: str) -> None:
        wire.reset()

    client._process_err = end  # type: ignore[method-assign]
    await wire.parse(b"-ERR 'x'\r\nMSG a.b 1 1\r\nb\r\nMSG a.b 1 9\r\nhal")
    await wire.parse(b"MSG a.b 1 1\r\nc\r\n")
    assert [data for _, _, data, _ in taken] == [b"c"]


@pytest.mark.parametrize(
    "line",
    [
        b"MSG a one 1\r\n",
        b"MSG a.b 1 -5\r\nabc\r\n",
        b"HMSG a.b 1 50 3\r\nabc\r\nMSG a.b 1 2\r\nhi\r\n",
        b"HMSG a.b 1 -1 3\r\nabc\r\n",
        b"NEWS\r\n",
        b"x" * 70_000,
    ],
)
async def test_what_is_not_the_protocol_is_refused(line: bytes) -> None:
    wire, _, _ = reading()
    with pytest.raises(ProtocolError):
        await wire.parse(line)


def test_one_header_is_found_without_the_others() -> None:
    assert header_of(HEAD, b"Nats-Msg-Id") == "r1:a:1"
    assert header_of(HEAD, b"Msg-Id") == ""


def test_a_status_message_has_its_status_beside_its_headers() -> None:
    head = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1016\r\n\r\n"
    assert headers_of(head) == {
        "Status": "100",
        "Description": "Idle Heartbeat",
        "Nats-Last-Consumer": "1016",
    }
