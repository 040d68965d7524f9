"""Errors of commands that use the database themselves, without the API."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def or_unavailable(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work with the database; raise SchemaMissing, PrivilegeMissing or
    DatabaseUnavailable."""
    import asyncpg

    from hocket.cli.terminal.errors import PrivilegeMissing, SchemaMissing
    from hocket.kit.postgres.database import DatabaseUnavailable, said
    from hocket.kit.postgres.errors import AWAY

    try:
        return await work
    except (
        asyncpg.UndefinedTableError,
        asyncpg.InvalidSchemaNameError,
        asyncpg.UndefinedObjectError,  # the role of the reports
    ) as error:
        raise SchemaMissing(reason=said(error)) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise PrivilegeMissing(reason=said(error)) from error
    except (*AWAY, asyncpg.PostgresError) as error:
        raise DatabaseUnavailable(reason=said(error)) from error
