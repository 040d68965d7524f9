"""What REST answers while Postgres refuses a statement for reasons that pass."""

import asyncpg
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from hocket.admin.requests.errors import add_error_handlers


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DeadlockDetectedError("deadlock detected"),
        asyncpg.SerializationError("could not serialize access"),
        asyncpg.AdminShutdownError("terminating connection"),
        asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
        asyncpg.TooManyConnectionsError("too many clients already"),
        asyncpg.InterfaceError("connection is closed"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_passes_by_itself_is_unavailable_and_no_fault_of_the_server(error: Exception) -> None:
    app = FastAPI()
    add_error_handlers(app)

    @app.get("/")
    async def fails() -> None:
        raise error

    answer = TestClient(app, raise_server_exceptions=False).get("/")
    assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
    assert int(answer.headers["retry-after"]) >= 1
