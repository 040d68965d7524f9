"""Errors of commands that use the database themselves, without the API."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from hocket.kit.access.audit_log import Actor

T = TypeVar("T")


def local_actor() -> "Actor":
    """Return the user of this machine as the audit log names them: by number if they have no name, as in
    a container with any user."""
    import getpass
    import os

    from hocket.kit.access.audit_log import Actor

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid-{os.getuid()}"
    return Actor(f"os:{name}", "database")


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
