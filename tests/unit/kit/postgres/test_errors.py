"""What a client is told when Postgres fails."""

import asyncpg
import pytest

from hocket.kit.postgres.database import unavailable
from hocket.schemas.errors import ErrorClass


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.UndefinedTableError('relation "hocket.grant" does not exist'),
        asyncpg.UndefinedColumnError('column "labels" does not exist'),
        asyncpg.UndefinedFunctionError("function hocket.cover_steps() does not exist"),
        asyncpg.InvalidSchemaNameError('schema "hocket" does not exist'),
    ],
)
def test_another_schema_is_not_told_as_a_postgres_that_is_away(error: Exception) -> None:
    told = unavailable(error).info()
    assert (told.code, told.error_class) == ("schema_differs", ErrorClass.UNAVAILABLE)
    assert str(error) in told.message
    assert "`hocket migrate`" in told.message
    assert "did not answer" not in told.message


@pytest.mark.parametrize("error", [OSError("refused"), TimeoutError()])
def test_a_postgres_that_is_away_is_told_as_such(error: Exception) -> None:
    told = unavailable(error).info()
    assert told.code == "database_unavailable"
    assert told.retryable


@pytest.mark.parametrize("error", [TimeoutError(), asyncpg.QueryCanceledError("statement timeout")])
def test_a_statement_that_took_too_long_is_not_told_as_a_wrong_address(error: Exception) -> None:
    told = unavailable(error).info()
    assert (told.code, told.error_class) == ("database_unavailable", ErrorClass.UNAVAILABLE)
    assert "DATABASE_URL" not in told.message
    assert "did not finish this in time" in told.message
