"""What is known of the statements of a Postgres server that did not tell."""

from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from hocket.workers.sql import postgres
from hocket.workers.sql.places import State, Statement
from hocket.workers.sql.wire import BoundedWire, ValueCount

STATEMENTS = [Statement(17, "1.5", "1.0"), Statement(18, "1.5", "1.0")]
HERE = "[Errno 111] Connect call failed ('127.0.0.1', 5432)"
HERE_TOO = "[Errno 111] Connect call failed ('::1', 5432, 0, 0)"
LATE = "[Errno 110] Connect call failed ('10.0.0.1', 5432)"


class Engine:
    """Cannot connect."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def connect(self) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ConnectionRefusedError(111, "Connect call failed"), State.ENDED),
        (OSError(f"Multiple exceptions: {HERE}, {HERE_TOO}"), State.ENDED),
        (OSError(f"Multiple exceptions: {HERE}, {LATE}"), State.UNSURE),
        (OSError(101, "Network is unreachable"), State.UNSURE),
        (TimeoutError(), State.UNSURE),
        (asyncpg.CannotConnectNowError("the database system is starting up"), State.ENDED),
        (asyncpg.TooManyConnectionsError("too many clients"), State.UNSURE),
        (asyncpg.InterfaceError("the connection is closed"), State.UNSURE),
        (asyncpg.UndefinedTableError("no pg_stat_activity"), State.HIDDEN),
        (DBAPIError("", {}, asyncpg.InsufficientPrivilegeError("denied")), State.HIDDEN),
    ],
    ids=lambda value: value.name if isinstance(value, State) else type(value).__name__,
)
async def test_a_look_that_fails_tells_what_its_error_says(error: Exception, state: State) -> None:
    engine: Any = Engine(error)
    assert await postgres.states_of(engine, STATEMENTS) == [state, state]


@pytest.mark.parametrize("is_closing", [False, True])
def test_only_what_the_server_closed_by_itself_has_ended(*, is_closing: bool) -> None:
    inner = SimpleNamespace(is_closed=lambda: is_closing, eof_received=lambda: None)
    transport = SimpleNamespace(set_protocol=lambda _protocol: None)
    connection = SimpleNamespace(_transport=transport, _protocol=inner)
    wire = BoundedWire(connection, ValueCount())
    assert not wire.is_left
    wire.eof_received()
    assert wire.is_left is not is_closing
