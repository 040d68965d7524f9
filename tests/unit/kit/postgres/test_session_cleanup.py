"""A session whose locks and settings could not be given up ends, and does not come back to the pool."""

import asyncio

import asyncpg
import pytest

from hocket.kit.postgres.session_cleanup import closed_on_failure, given_up


class Connection:
    """Executes statements, except one that fails; notes all of them."""

    def __init__(self, failing: str = "", error: BaseException | None = None) -> None:
        self.executed: list[str] = []
        self.is_terminated = False
        self._failing = failing
        self._error = error or TimeoutError()

    async def execute(self, statement: str, *, timeout: float) -> None:
        self.executed.append(statement)
        if statement == self._failing:
            raise self._error

    def terminate(self) -> None:
        self.is_terminated = True


async def test_what_is_given_up_is_so_after_the_block_and_after_a_failure_in_it() -> None:
    connection = Connection()
    async with given_up(connection, "RESET", "UNLOCK", timeout_s=1.0):
        await connection.execute("LOCK", timeout=1.0)
    assert connection.executed == ["LOCK", "RESET", "UNLOCK"]
    with pytest.raises(ValueError, match="work"):
        async with given_up(connection, "UNLOCK", timeout_s=1.0):
            raise ValueError("work")
    assert connection.executed[3:] == ["UNLOCK"]
    assert not connection.is_terminated


@pytest.mark.parametrize("failing", ["RESET", "UNLOCK"])
@pytest.mark.parametrize("error", [TimeoutError(), OSError(), asyncio.CancelledError()])
async def test_a_session_that_may_still_hold_something_ends(
    failing: str, error: BaseException
) -> None:
    connection = Connection(failing, error)
    with pytest.raises(type(error)):
        async with given_up(connection, "RESET", "UNLOCK", timeout_s=1.0):
            pass
    assert connection.is_terminated


async def test_the_error_that_ended_a_session_is_not_hidden_by_what_can_no_longer_be_given_up() -> (
    None
):
    """The pool has the connection back, and refuses the statement."""
    released = asyncpg.InterfaceError("connection has been released back to the pool")
    connection = Connection("UNLOCK", released)
    with pytest.raises(ConnectionRefusedError):
        async with given_up(connection, "UNLOCK", timeout_s=1.0):
            raise ConnectionRefusedError
    assert connection.is_terminated


async def test_a_lock_that_may_have_been_taken_goes_with_its_session() -> None:
    connection = Connection("LOCK")
    with pytest.raises(TimeoutError):
        async with closed_on_failure(connection):
            await connection.execute("LOCK", timeout=1.0)
    assert connection.is_terminated
