"""What REST answers while Postgres refuses a statement for reasons that pass."""

import asyncpg
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from hocket.admin.console.page_route import page_router
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


@pytest.mark.parametrize(
    ("error", "status", "text", "again"),
    [
        (TimeoutError(), 503, "Postgres did not finish this in time", True),
        (OSError("refused"), 503, "Postgres did not answer", True),
        (KeyError("a secret"), 500, "its log has the details under", False),
    ],
    ids=["slow", "away", "fault"],
)
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_people_are_shown_a_page_when_a_page_fails(
    error: Exception, status: int, text: str, again: bool, accept: str
) -> None:
    app, router = FastAPI(), page_router()

    @router.get("/runs")
    async def fails() -> None:
        raise error

    app.include_router(router)
    add_error_handlers(app)
    client = TestClient(app, raise_server_exceptions=False)
    answer = client.get("/console/runs", headers={"Accept": accept})
    assert answer.status_code == status
    assert ("<title>" in answer.text) == (accept == "text/html")
    assert text in answer.text
    assert "a secret" not in answer.text
    assert ("retry-after" in answer.headers) is again
