"""What the failure of a statement means: Postgres is away, the values are at fault, or it is unclear.

*Away* passes by itself or through an operator (no connection, starting, full, locked, a standby): the
same statement is tried again. A *row fault* is in the values: the same statement would always fail, so
the writer of a batch splits it and sets the faulty row aside. Everything else is *unclear*: errors that
both an overloaded server and an oversized value cause, a missing table or privilege, an error in a
trigger. A writer that can take its batch back tries it in parts; the others try again.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum

import asyncpg

from hocket.schemas.errors import ErrorClass, HocketError

AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised by a connection whose server was killed
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,  # it is a standby, or was made one
    asyncpg.InsufficientResourcesError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
"""What is raised while Postgres cannot answer. For statements that read, all of these are temporary."""

ROW_FAULT_CLASSES = frozenset({"21", "22", "23", "44", "54"})
"""SQLSTATE classes: cardinality, data, integrity, WITH CHECK OPTION, and program limits (an index entry
that is too long, a value beyond 1 GB). https://www.postgresql.org/docs/current/errcodes-appendix.html"""

STATEMENT_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ValueError,
    OverflowError,
    TypeError,
    MemoryError,
)
"""Everything that a statement can raise; `meaning_of` classifies it."""

_OF_ONE_VALUE_OR_OF_ALL = (asyncpg.OutOfMemoryError, asyncpg.ProtocolViolationError)


OF_SCHEMA = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
)
"""What is raised if the schema is not the one that this release knows."""


class SchemaDiffers(HocketError):
    """Postgres has an older or a newer schema than this release knows: {reason}. If it is older, run
    `hocket migrate` of this release; if it is newer, run the release that it belongs to. See
    docs/how-to/upgrade.md#the-schema."""

    code = "schema_differs"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class Meaning(StrEnum):
    """What the failure of a statement means."""

    AWAY = "away"
    ROW_FAULT = "row fault"
    UNCLEAR = "unclear"


def meaning_of(error: BaseException) -> Meaning:
    """Return what the failure of a writing statement means."""
    # this process ran out of memory: the values are not at fault, even if asyncpg failed to encode one
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return Meaning.AWAY
    if is_of_pooler(error):
        return Meaning.AWAY
    if isinstance(error, _OF_ONE_VALUE_OR_OF_ALL):
        return Meaning.UNCLEAR
    if isinstance(error, AWAY):
        return Meaning.AWAY
    if isinstance(error, asyncpg.PostgresError):
        of_the_row = (error.sqlstate or "")[:2] in ROW_FAULT_CLASSES
    else:
        of_the_row = isinstance(error, ValueError | OverflowError | TypeError)
    return Meaning.ROW_FAULT if of_the_row else Meaning.UNCLEAR


def is_of_pooler(error: BaseException) -> bool:
    """Return whether an error is a pooler's, which has no server for us or lost it: pgbouncer reports
    this as a protocol violation. Unlike pgbouncer, Postgres names the place in its source with each
    error."""
    said_where = getattr(error, "server_source_function", None)
    return isinstance(error, asyncpg.ProtocolViolationError) and not said_where


def is_row_fault(error: BaseException) -> bool:
    """Return whether a statement failed because of its values, so that trying again cannot help."""
    return meaning_of(error) is Meaning.ROW_FAULT


def may_be_row_fault(error: BaseException) -> bool:
    """Return whether a batch may have failed because of a value in it, so that a part could be
    written."""
    return meaning_of(error) is not Meaning.AWAY


async def fails_alone(error: Exception, probe: Callable[[], Awaitable[object]]) -> bool:
    """Return whether an operation failed for a reason of its own while Postgres serves others, of which
    `probe` is one. False if Postgres refuses everything (a missing migration or privilege), because that
    is temporary."""
    if isinstance(error, AWAY):
        return False
    if not isinstance(error, asyncpg.PostgresError):
        return True
    try:
        await probe()
    except Exception:
        return False
    return True
