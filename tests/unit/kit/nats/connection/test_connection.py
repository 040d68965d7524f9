"""What is said of a connection that does not come about."""

from typing import Any

import pytest
from nats.errors import AuthorizationError

from hocket.kit.nats.connection.connection import Connection
from hocket.kit.nats.errors import BusUnavailable


async def test_that_the_server_hangs_up_does_not_hide_what_it_said_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Connection("nats://127.0.0.1:4222", name="test")

    async def connect(*_: Any, error_cb: Any, **__: Any) -> None:
        await error_cb(ConnectionRefusedError(111, "nobody listens yet"))
        await error_cb(AuthorizationError())
        await error_cb(ConnectionResetError(104, "Connection reset by peer"))
        raise TimeoutError

    async def close() -> None:
        return

    monkeypatch.setattr(connection.client, "connect", connect)
    monkeypatch.setattr(connection.client, "close", close)
    with pytest.raises(BusUnavailable, match="authorization failed"):
        await connection.open()
